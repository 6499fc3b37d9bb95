"""The operation that an earlier run blamed, kept in its domain where the same line of the program calls it.

What is done to its inputs is what the trials after an incident do. In a graph of TensorFlow 1, where the operation is
made already, the value that enters it is fed; its gradient is then that at the value fed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from tb_nanwatch.format.records import OperandStats, Origin, Source
from tb_nanwatch.format.treatment import Treatment
from tb_nanwatch.record.applied import pure
from tb_nanwatch.record.applied.remedy import Feeds, GraphLoop, NotApplicable, Remedy
from tb_nanwatch.record.graph import guards as graph_guards
from tb_nanwatch.record.replay import guards


class _InForce:
    """Stands in for the switches of a trial: always on, for the operation itself; knows whether it was met."""

    least = 0.0

    def __init__(self) -> None:
        self.met = 0

    @property
    def guard(self) -> Any:
        self.met += 1
        return tf.constant(True)

    @property
    def wide(self) -> Any:  # asked for another operation of that line
        self.met -= 1
        return tf.constant(False)


class Guard(Remedy):
    """A guard around one operation."""

    def __init__(self, asked: Treatment) -> None:
        super().__init__()
        assert asked.place is not None  # as checked when it was read
        self._name, self._place = asked.remedy, asked.place
        where = f" at line {asked.place.line}" if asked.place.line else ""
        self._what = f"{asked.place.op_type}{where}"
        self.words = f"a guard around {self._what}"
        self._switches: Any = _InForce()
        source = Source(asked.place.file, asked.place.line) if asked.place.line else None
        operand = OperandStats(shape=(0,), inf=1)  # what went in is not handed over: no guard is left out for it
        self._origin = Origin("loss", op_type=asked.place.op_type, source=source, inputs=(operand,))

    def around(self) -> AbstractContextManager[Any]:
        found = guards.guard_of(self._place.op_type, self._origin)
        if found is None:
            raise NotApplicable(f"no guard is known for {self._place.op_type}")
        self._check(*found.remedies)
        self.words = f"{found.words.format(small=found.small)}, for {self._what}"
        return guards.installed(self._place.op_type, self._origin, self._switches)

    def _check(self, *names: str) -> None:
        if self._name not in (names + ("safe_where",) * self._place.through_where):
            raise NotApplicable(f"what guards {self._place.op_type} is {names[0]}")

    def after_first_step(self) -> None:
        if self._switches.met <= 0:
            raise NotApplicable(f"{self._what} of the earlier run was not met in this one")

    # ------------------------------------------------------------ TensorFlow 1

    def begin_graph(self, loop: GraphLoop) -> None:
        known = graph_guards.guard_of(self._place.op_type)
        if known is None:
            raise NotApplicable(f"no guard is known for {self._place.op_type} in a graph")
        self._number, self._kept, name, words = known
        self._check(name)
        try:
            op = loop.graph.get_operation_by_name(self._place.op_name)
        except (KeyError, ValueError) as error:
            raise NotApplicable(f"there is no operation {self._place.op_name!r} in this graph") from error
        if op.type != self._place.op_type:  # the gradient's own op was blamed, for which the forward one answers
            op = getattr(op, "_original_op", None) or op
        if op.type != self._place.op_type:
            raise NotApplicable(f"{op.name} is no {self._place.op_type} in this graph")
        self._number, self._kept, _, words = (
            graph_guards.guard_of(op.type, op.outputs[0].dtype.base_dtype.name) or known
        )
        self._tensor = op.inputs[self._number]
        self.words = f"{words}, for {op.name}"
        self._switches.met = 1

    def feeds(self, loop: GraphLoop, feeds: Feeds) -> dict[Any, Any]:
        (value,) = pure.read(loop, [self._tensor], feeds, "what enters the operation")
        return {self._tensor: self._kept(value)}
