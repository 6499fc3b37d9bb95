"""on_nonfinite="skip": an update whose gradients are not all finite is not applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tb_nanwatch.record import collect, kernels


def apply_if_finite(optimizer: Any, variables: list[Any], gradients: list[Any], apply: Callable[[], Any]) -> Any:
    """Run `apply` only where every gradient is finite; moving statistics and metrics stay as they are.

    Raises whatever `apply` raises. Returns the optimizer's iterations, as `apply_gradients` does.
    """
    dense = [t for t in map(kernels.measurable, gradients) if t is not None]
    if not dense:
        return apply()
    if not getattr(optimizer, "built", True):
        optimizer.build(variables)  # variables cannot be made inside a cond
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(t)) for t in dense])

    def applied() -> Any:
        with collect.paused():
            apply()
        return tf.constant(True)

    tf.cond(finite, applied, lambda: tf.constant(False))
    return getattr(optimizer, "iterations", None)
