"""What optimizers say about themselves, and which of them a training uses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import tensorflow as tf

from tb_nanwatch.record.naming import copies, made, raw_variable
from tb_nanwatch.record.probe import Scalars


class Optimizers:
    """Those of a training: what its entry point was told of, in order, until a step is seen to use some."""

    def __init__(self, labelled: Iterable[tuple[str, Any]] = ()) -> None:
        self._labels = [(label, one) for label, one in labelled if one is not None]
        self._used: list[Any] = []

    @property
    def all(self) -> list[Any]:
        """The one whose numbers have no further name comes first."""
        known = [one for _, one in self._labels]
        if not self._used:
            return known
        return sorted(self._used, key=lambda one: next((n for n, k in enumerate(known) if k is one), len(known)))

    @property
    def scaled(self) -> bool:
        """Whether one scales its loss dynamically."""
        return any(is_scaled(one) for one in self.all)

    def learn(self, used: Iterable[Any]) -> bool:
        """Take note of what a step has applied; True if that changes what `scalars` gives."""
        new = [one for one in used if not any(one is known for known in self._used)]
        before = self.all[:1] if not self._used else self.all
        self._used += new
        after = self.all
        return len(before) != len(after) or any(a is not b for a, b in zip(before, after, strict=True))

    def scalars(self) -> Scalars:
        """The numbers of the first one, and the learning rates of the others that are used."""
        first, *others = self.all or [None]
        rates, taken = [], {"learning_rate"}
        for one in others if self._used else ():
            label = next((label for label, known in self._labels if known is one), "") or getattr(
                one, "name", "optimizer"
            )
            name = f"learning_rate/{label}"
            while name in taken:
                name += "_"
            taken.add(name)
            rate = scalars_of(one).learning_rate
            rates += [] if rate is None else [(name, rate)]
        return replace(scalars_of(first), others=tuple(rates))


def labelled(model: Any) -> list[tuple[str, Any]]:
    """(name, optimizer) of a compiled Keras model: its own, and those that a train_step finds in attributes."""
    own = getattr(model, "optimizer", None)
    others = [(name, one) for name, one in vars(model).items() if _is_optimizer(one) and one is not own]
    return [("optimizer", own), *others]


def _is_optimizer(value: Any) -> bool:
    return hasattr(value, "apply_gradients") and hasattr(value, "iterations")


def inner_of(optimizer: Any) -> Any:
    """The optimizer that does the work behind one that scales the loss; any other is its own."""
    return getattr(optimizer, "inner_optimizer", None) or optimizer


def clips(optimizer: Any) -> bool:
    """Whether a bound can be put on the gradients that this optimizer is given."""
    return hasattr(inner_of(optimizer), "_clip_gradients")


def is_scaled(optimizer: Any) -> bool:
    """Whether an optimizer scales the loss dynamically and skips updates that overflow."""
    return hasattr(optimizer, "dynamic_scale") or hasattr(optimizer, "initial_scale")


def scalars_of(optimizer: Any) -> Scalars:
    """Learning rate, loss scale and iterations of a Keras optimizer, as far as it has them."""
    if optimizer is None:
        return Scalars()
    inner = inner_of(optimizer)
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
    """(variable, value) of what an optimizer makes for itself, as it is before the first step, in every replica."""
    inner = inner_of(optimizer)
    values: dict[int, Any] = {}
    if hasattr(inner, "initial_accumulator_value"):
        for variable in made(inner, "_accumulators"):
            values |= {id(one): inner.initial_accumulator_value for one in copies(variable)}
    scale = getattr(optimizer, "dynamic_scale", None)
    if scale is not None and hasattr(optimizer, "initial_scale"):
        values |= {id(one): optimizer.initial_scale for one in copies(scale)}
    variables = [one for v in variables_of([optimizer] if optimizer is not None else []) for one in copies(v)]
    return [
        (v, tf.fill(tf.shape(v), tf.cast(values.get(id(v), 0), v.dtype)))
        for v in variables
        if getattr(v, "dtype", tf.string) != tf.string and "learning_rate" not in getattr(v, "name", "")
    ]
