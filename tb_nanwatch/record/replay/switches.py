"""What trials turn on and off in one traced step, so that they share its trace, which under XLA is a compilation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tb_nanwatch.record import own
from tb_nanwatch.record.optimizers import clips, inner_of


class Switches:
    """Variables that a traced step reads; all off at first.

    guard: the guard of the origin's op is in force, wide: also those of the other ops of its line, least: they keep
    that far from the edge at least. norm, value: bounds of the gradients. rate: factor on the learning rate.
    seen_norm: the global norm of the gradients, as the last step had it.
    """

    def __init__(self) -> None:
        self.guard = own.variable(False, "trial_guard")
        self.wide = own.variable(False, "trial_wide")
        self.least = own.variable(0.0, "trial_least")
        self.norm = own.variable(float("inf"), "trial_norm")
        self.value = own.variable(float("inf"), "trial_value")
        self.rate = own.variable(1.0, "trial_rate")
        self.seen_norm = own.variable(float("nan"), "trial_seen_norm")

    @contextmanager
    def set(self, **values: Any) -> Iterator[None]:
        """These for a while."""
        before = {name: getattr(self, name).numpy() for name in values}
        try:
            for name, value in values.items():
                getattr(self, name).assign(value)
            yield
        finally:
            for name, value in before.items():
                getattr(self, name).assign(value)

    @contextmanager
    def on(self, optimizer: Any) -> Iterator[None]:
        """A Keras optimizer that clips and steps as told, while a step is traced or runs eagerly."""
        inner = inner_of(optimizer)
        given: dict[str, Any] = {}
        if clips(optimizer):
            clip = inner._clip_gradients
            given["_clip_gradients"] = lambda gradients: self._clipped(clip(gradients))
        if hasattr(inner, "_get_current_learning_rate"):
            rate = inner._get_current_learning_rate
            given["_get_current_learning_rate"] = lambda: rate() * tf.cast(self.rate, rate().dtype)
        for name, function in given.items():
            object.__setattr__(inner, name, function)
        try:
            yield
        finally:
            for name in given:
                inner.__dict__.pop(name, None)

    def _clipped(self, gradients: Any) -> Any:
        norm = tf.linalg.global_norm([tf.cast(_values(g), tf.float32) for g in gradients if g is not None])
        self.seen_norm.assign(norm)
        scale = tf.where(tf.math.is_inf(self.norm), 1.0, self.norm / tf.maximum(norm, self.norm))
        return [None if g is None else with_values(g, lambda v: self._bounded(v, scale)) for g in gradients]

    def _bounded(self, value: Any, scale: Any) -> Any:
        bound = tf.cast(self.value, value.dtype)
        return tf.clip_by_value(value * tf.cast(scale, value.dtype), -bound, bound)


def _values(gradient: Any) -> Any:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def with_values(gradient: Any, change: Callable[[Any], Any]) -> Any:
    """A gradient, dense or sparse, with its values changed."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(change(gradient.values), gradient.indices, gradient.dense_shape)
    return change(gradient)
