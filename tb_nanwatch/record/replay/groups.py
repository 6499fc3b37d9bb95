"""Batches of grouped steps (steps_per_execution), kept by reference inside the call that runs several of them.

Such a call takes its batches from the iterator in its own graph, where no host sees them. While that graph is traced,
every batch that it takes is also put into a staging area of TensorFlow, which holds references, not copies. It is
emptied whenever a shadow is kept; after an incident the batches come out in the order in which they were trained on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops.iterator_ops import OwnedIterator
from tensorflow.python.data.util import structure

from tb_nanwatch.record.guard import Guard

_numbers = itertools.count()


class Staged:
    """The staging area of one recorder. `steps` a call trains on, at most."""

    def __init__(self, steps: int, guard: Guard) -> None:
        self.steps = steps
        self._guard = guard
        self._area = f"nanwatch_batches_{next(_numbers)}"
        self._spec: Any = None

    @property
    def found(self) -> bool:
        """Whether a traced call was seen to take batches."""
        return self._spec is not None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While a call is made, which may trace its graph."""
        original = OwnedIterator.get_next_as_optional

        def get_next_as_optional(iterator: Any) -> Any:
            optional = original(iterator)
            if not tf.executing_eagerly():
                with self._guard.contained("keeping the batches of grouped steps"):
                    optional = self._keep(iterator.element_spec, optional)
            return optional

        OwnedIterator.get_next_as_optional = tf.autograph.experimental.do_not_convert(get_next_as_optional)
        try:
            yield
        finally:
            OwnedIterator.get_next_as_optional = original

    def clear(self) -> None:
        """Let all batches go."""
        if self.found:
            with tf.device("CPU:0"):
                tf.raw_ops.StageClear(**self._about())

    def size(self) -> int:
        """Batches that are there."""
        if not self.found:
            return 0
        with tf.device("CPU:0"):
            return int(tf.raw_ops.StageSize(**self._about()))

    def first_bytes(self) -> int:
        """Bytes of the oldest batch, 0 if there is none."""
        if not self.size():
            return 0
        with tf.device("CPU:0"):
            tensors = tf.raw_ops.StagePeek(index=0, **self._about())
        return sum(t.shape.num_elements() * t.dtype.size for t in tensors)

    def take(self) -> list[Any]:
        """All batches, oldest first; they are gone afterwards."""
        with tf.device("CPU:0"):
            taken = [tf.raw_ops.Unstage(**self._about()) for _ in range(self.size())]
        return [structure.from_tensor_list(self._spec, tensors) for tensors in taken]

    # ------------------------------------------------------------

    def _about(self) -> dict[str, Any]:
        return {"dtypes": structure.get_flat_tensor_types(self._spec), "shared_name": self._area}

    def _keep(self, spec: Any, optional: Any) -> Any:
        """The same optional; who uses it waits until its batch is kept.

        Without that, iterations of the loop around the steps, which overlap, keep their batches out of order.
        """
        if self.found and not structure.are_compatible(self._spec, spec):
            self.clear()  # what was kept of another data set
        self._spec = spec

        def keep() -> Any:
            tensors = structure.to_tensor_list(spec, optional.get_value())
            with tf.device("CPU:0"):
                tf.raw_ops.Stage(values=tensors, shared_name=self._area)
            return tf.constant(True)

        with tf.control_dependencies([tf.cond(optional.has_value(), keep, lambda: tf.constant(False))]):
            return tf.nest.map_structure(tf.identity, optional, expand_composites=True)
