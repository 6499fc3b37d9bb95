"""on_nonfinite="skip": an update whose gradients are not all finite is not applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tb_nanwatch.record import collect, distribution, kernels


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

    if distribution.in_replica():
        _apply_in_replicas(finite, applied)
    else:
        tf.cond(finite, applied, lambda: tf.constant(False))
    return getattr(optimizer, "iterations", None)


def _apply_in_replicas(finite: Any, applied: Callable[[], Any]) -> None:
    """All replicas of all workers apply or none does.

    An optimizer meets the other replicas, which it cannot do inside a cond: so the cond is put around all of them.
    """
    context = tf.distribute.get_replica_context()
    bad = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.cast(tf.logical_not(finite), tf.float32))

    def across(strategy: Any, bad: Any, applied: Any) -> None:
        def apply_all() -> Any:
            strategy.extended.call_for_each_replica(lambda apply: apply(), args=(applied,))
            return tf.constant(True)

        tf.cond(tf.equal(strategy.experimental_local_results(bad)[0], 0), apply_all, lambda: tf.constant(False))

    context.merge_call(across, args=(bad, applied))
