"""What an optimizer says about itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tb_nanwatch.record.naming import made, raw_variable
from tb_nanwatch.record.probe import Scalars


def is_scaled(optimizer: Any) -> bool:
    """Whether an optimizer scales the loss dynamically and skips updates that overflow."""
    return hasattr(optimizer, "dynamic_scale") or hasattr(optimizer, "initial_scale")


def scalars_of(optimizer: Any) -> Scalars:
    """Learning rate, loss scale and iterations of a Keras optimizer, as far as it has them."""
    if optimizer is None:
        return Scalars()
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    rate = getattr(inner, "_learning_rate", None)
    if rate is not None and not hasattr(rate, "assign"):
        rate = (lambda: inner.learning_rate) if hasattr(inner, "learning_rate") else None
    scale = getattr(optimizer, "dynamic_scale", None)
    if scale is None and is_scaled(optimizer):  # of Keras 2; or not built yet, which Keras 3 does in the first step
        scale = lambda: _scale(optimizer)  # noqa: E731  # read anew each time
    iterations = getattr(inner, "_iterations", getattr(inner, "iterations", None))  # the property may be a quotient
    return Scalars(
        raw_variable(rate),
        raw_variable(scale),
        raw_variable(iterations),
    )


def _scale(optimizer: Any) -> Any:
    for name in ("loss_scale", "dynamic_scale", "initial_scale"):
        scale = getattr(optimizer, name, None)
        if scale is not None:
            return tf.convert_to_tensor(raw_variable(scale))
    return float("nan")


def variables_of(holders: Iterable[Any]) -> list[Any]:
    """Variables of models, modules and optimizers as they are now: weights, slots, metrics, seeds."""
    found: list[Any] = []
    for holder in holders:
        found += made(holder, "variables")
        for metric in getattr(holder, "metrics", None) or ():
            found += metric.variables
    return found


def first_values(optimizer: Any) -> list[tuple[Any, Any]]:
    """(variable, value) of what an optimizer makes for itself, as it is before the first step."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    values = {}
    if hasattr(inner, "initial_accumulator_value"):
        for variable in made(inner, "_accumulators"):
            values[id(raw_variable(variable))] = inner.initial_accumulator_value
    for name, first in (("dynamic_scale", "initial_scale"),):
        if getattr(optimizer, name, None) is not None and hasattr(optimizer, first):
            values[id(raw_variable(getattr(optimizer, name)))] = getattr(optimizer, first)
    variables = [raw_variable(v) for v in variables_of([optimizer] if optimizer is not None else [])]
    return [
        (v, tf.fill(tf.shape(v), tf.cast(values.get(id(v), 0), v.dtype)))
        for v in variables
        if getattr(v, "dtype", tf.string) != tf.string and "learning_rate" not in getattr(v, "name", "")
    ]
