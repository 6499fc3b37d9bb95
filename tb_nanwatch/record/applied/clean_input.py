"""Batches without samples that are not finite, or with inputs brought to a size of about 1.

Both are done inside the step, so that they are compiled with it, and the recorder sees what the step sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tb_nanwatch.record import distribution, own
from tb_nanwatch.record.applied.remedy import Feeds, GraphLoop, Loop, NotApplicable, Remedy
from tb_nanwatch.record.replay.remedies import EXTREME


class FiniteSamples(Remedy):
    """Samples with a value that is not finite, in any part of the batch, replaced by the others in turn."""

    words = "samples with values that are not finite replaced by others of the batch"

    def __init__(self) -> None:
        super().__init__()
        self._met = False

    def arguments(self, arguments: Sequence[Any]) -> Sequence[Any]:
        flat = tf.nest.flatten(list(arguments))
        first = next((x for x in flat if _is_batch(x)), None)
        if first is None:
            raise NotApplicable("the step takes no arrays, so that no samples can be told apart")
        self._met = True
        parts = [x for x in flat if _is_batch(x) and x.shape[0] == first.shape[0]]
        good = tf.reduce_all(tf.stack([_finite_rows(x) for x in parts]), axis=0)
        rows = _replaced(good)
        taken = [_take(x, rows) if _is_batch(x) and x.shape[0] == first.shape[0] else x for x in flat]
        return list(tf.nest.pack_sequence_as(list(arguments), taken))

    # ------------------------------------------------------------ TensorFlow 1

    def feeds(self, loop: GraphLoop, feeds: Feeds) -> dict[Any, Any]:
        arrays = _fed(loop, feeds)
        size = len(next(iter(arrays.values()))[1])
        arrays = {name: pair for name, pair in arrays.items() if len(pair[1]) == size}
        good = np.all([np.isfinite(a.reshape(size, -1)).all(axis=1) for _, a in arrays.values() if _floats(a)], axis=0)
        chosen = np.flatnonzero(good)
        if not len(chosen):
            return {}
        rows = np.where(good, np.arange(size), chosen[np.arange(size) % len(chosen)])
        return {tensor: array[rows] for tensor, array in arrays.values()}


class ScaledInputs(Remedy):
    """Inputs divided by the largest magnitude in the first batch; targets (the second part of a batch) stay."""

    words = "inputs divided by their largest magnitude in the first batch"

    def __init__(self) -> None:
        super().__init__()
        self._largest: Any = None  # float32 variable, 0 before the first step; a float for graphs

    def begin(self, loop: Loop) -> None:
        super().begin(loop)
        self._largest = own.variable(0.0, "largest_input")

    def arguments(self, arguments: Sequence[Any]) -> Sequence[Any]:
        if distribution.in_replica():
            raise NotApplicable("replicas see batches of their own, which would be scaled differently")
        structure = list(arguments)
        batch = structure[0] if len(structure) == 1 else structure
        head = batch[0] if isinstance(batch, list | tuple) and batch else batch
        inputs = {id(x) for x in tf.nest.flatten(head) if _is_batch(x) and _floats(x)}
        if not inputs:
            raise NotApplicable("the first part of the batch holds no floating numbers")
        flat = tf.nest.flatten(structure)
        sizes = [tf.reduce_max(_magnitudes(x)) for x in flat if id(x) in inputs]
        known = tf.convert_to_tensor(self._largest)
        largest = tf.where(tf.equal(known, 0), tf.reduce_max(tf.stack(sizes)), known)
        self._largest.assign(largest)
        by = tf.maximum(largest, np.float32(1e-30))
        scaled = [_divided(x, by) if id(x) in inputs else x for x in flat]
        return list(tf.nest.pack_sequence_as(structure, scaled))

    def after_first_step(self) -> None:
        largest = float(np.asarray(self._largest))
        _refuse_ordinary(largest)
        self.words = f"inputs divided by {largest:g}, their largest magnitude in the first batch"

    # ------------------------------------------------------------ TensorFlow 1

    def begin_graph(self, loop: GraphLoop) -> None:  # noqa: ARG002
        self._largest = 0.0

    def feeds(self, loop: GraphLoop, feeds: Feeds) -> dict[Any, Any]:
        arrays = _fed(loop, feeds)
        tensor, array = next(iter(arrays.values()))  # the first that is fed is the input
        if not _floats(array):
            raise NotApplicable("the first array that is fed holds no floating numbers")
        if not self._largest:
            self._largest = float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
            _refuse_ordinary(self._largest)
            self.words = f"{tensor.op.name} divided by {self._largest:g}, its largest magnitude in the first batch"
        return {tensor: (array / array.dtype.type(self._largest))}


def _refuse_ordinary(largest: float) -> None:
    if largest <= EXTREME:
        raise NotApplicable(f"the inputs are of ordinary size, at most {largest:.3g} in the first batch")


def _fed(loop: GraphLoop, feeds: Feeds) -> dict[str, tuple[Any, Any]]:
    """Batches among what the user feeds."""
    arrays = {name: (t, np.asarray(value, t.dtype.as_numpy_dtype)) for name, (t, value) in feeds.items()}
    arrays = {name: (t, a) for name, (t, a) in arrays.items() if a.ndim}
    if not any(_floats(a) for _, a in arrays.values()):
        raise NotApplicable("no floating array is fed; what queues and data sets give cannot be changed in a graph")
    if not loop.may_feed_again:
        raise NotApplicable("the program feeds the inputs, which a hook cannot change; use watch_session")
    return arrays


def _is_batch(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return tf.is_tensor(value) and isinstance(value, tf.Tensor) and bool(value.shape.rank)


def _floats(value: Any) -> bool:
    return bool(tf.as_dtype(value.dtype).is_floating)


def _finite_rows(x: Any) -> Any:
    """bool[samples]."""
    if not _floats(x):
        return tf.ones(tf.shape(x)[:1], tf.bool)
    return tf.reduce_all(tf.math.is_finite(x), axis=list(range(1, len(x.shape))))


def _replaced(good: Any) -> Any:
    """int32[samples]: for every row the one to take; good ones stay, and so do all where none is good."""
    places = tf.range(tf.size(good))
    order = tf.argsort(tf.cast(tf.logical_not(good), tf.int32), stable=True)  # good ones first
    count = tf.reduce_sum(tf.cast(good, tf.int32))
    others = tf.gather(order, places % tf.maximum(count, 1))
    return tf.where(tf.logical_or(good, tf.equal(count, 0)), places, others)


def _take(x: Any, rows: Any) -> Any:
    return x[np.asarray(rows)] if isinstance(x, np.ndarray) else tf.gather(x, rows)


def _magnitudes(x: Any) -> Any:
    return tf.cast(tf.abs(tf.where(tf.math.is_finite(x), x, tf.zeros_like(x))), tf.float32)


def _divided(x: Any, by: Any) -> Any:
    if isinstance(x, np.ndarray):
        return (x / np.asarray(by)).astype(x.dtype)
    return x / tf.cast(by, x.dtype)
