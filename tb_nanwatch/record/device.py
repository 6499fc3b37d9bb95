"""The half of the recorder that lives on the device: what a step writes down about itself while it runs.

At the end of a step its tensors are reduced to one row of cheap numbers, written into a slot of a small
variable. Every `every`-th step, and when a cheap number says that something may be wrong, the
statistics of each tensor go into a second variable. The host reads the slots after the call. One call may hold several
steps (steps_per_execution); there are as many slots.

Under XLA on a CPU reductions are slow, so statistics are taken of every `every`-th tensor at each step in turn.
A scatter writes the slot: a strided slice at a variable index would make XLA compile anew at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import tensorflow as tf

from tb_nanwatch.record import kernels, own
from tb_nanwatch.record.options import Options

CLOSE_LOOKS: Final = 16  # steps in a row in trouble that are counted exactly; after that every `every`-th

NOTHING, CLOSE_LOOK = 0, -1  # kinds of a slot's statistics; 1 + g stands for those of group g
ALL_GROUPS: Final = 1


@dataclass
class Plan:
    """What one trace of a step measures, and the slots that it writes to.

    ids int[m] of the tensors, scalar_ids int[k] of the losses. rows float64[slots, m + k]; stats float64[slots, m, kernels.COLUMNS];
    kinds int64[slots]; groups: which tensors share a turn, all in one if there are no turns.
    """

    index: int
    ids: tuple[int, ...]
    scalar_ids: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    compiled: bool
    rows: Any
    stats: Any
    kinds: Any
    measures: dict[Any, Callable[..., Any]] = field(default_factory=dict)  # for eager steps: `write` as tf.functions


class DeviceSide:
    """Variables shared by all plans of a recorder, and the ops that write to them.

    clock int64: steps so far; which int64: the plan that ran last; streak int64: steps in trouble in a row.
    """

    def __init__(self, options: Options, slots: int) -> None:
        self.options = options
        self.slots = slots
        self.plans: list[Plan] = []
        self._by_key: dict[Any, Plan] = {}
        with tf.init_scope():
            self.clock = tf.Variable(0, dtype=tf.int64, trainable=False, name="nanwatch_clock")
            self.which = tf.Variable(-1, dtype=tf.int64, trainable=False, name="nanwatch_plan")
            self.streak = tf.Variable(0, dtype=tf.int64, trainable=False, name="nanwatch_streak")

    def plan(self, ids: Sequence[int], scalar_ids: Sequence[int], compiled: bool) -> Plan:
        """The plan for these tensors, made at the first call."""
        key = (tuple(ids), tuple(scalar_ids), compiled)
        if key not in self._by_key:
            count, width = len(ids), len(ids) + len(scalar_ids)
            turns = self.options.every if compiled else 1
            with tf.init_scope():
                self._by_key[key] = Plan(
                    len(self.plans),
                    key[0],
                    key[1],
                    tuple(tuple(range(turn, count, turns)) for turn in range(turns)),
                    compiled,
                    _variable([self.slots, width], tf.float64, "rows"),
                    _variable([self.slots, count, kernels.COLUMNS], tf.float64, "stats"),
                    _variable([self.slots], tf.int64, "kinds"),
                )
            self.plans.append(self._by_key[key])
        return self._by_key[key]

    def write(self, plan: Plan, tensors: Sequence[Any], losses: Sequence[Any]) -> None:
        """Add the ops that measure `tensors` and write the row, at the end of the graph being traced."""
        cheap = kernels.finite_flag if plan.compiled else kernels.sum_of_squares
        cheaply = [tf.cast(cheap(t), tf.float64) for t in tensors]
        numbers = cheaply + [_mean(loss) for loss in losses]
        row = tf.stack(numbers) if numbers else tf.zeros([0], tf.float64)
        with tf.control_dependencies([row]):  # a step that fails on the way, as at the end of the data, is none
            clock = self.clock.read_value()
        slot = clock % self.slots
        turn = clock % self.options.every
        suspect = tf.logical_not(tf.reduce_all(tf.math.is_finite(row)))
        streak = self.streak.read_value()
        closer = tf.logical_and(suspect, tf.logical_or(streak < CLOSE_LOOKS, tf.equal(turn, 0)))
        _put(plan.rows, slot, row)
        _put(plan.kinds, slot, tf.constant(NOTHING, tf.int64))

        def look_closer() -> Any:
            statistics = tf.stack([kernels.exact_statistics(t) for t in tensors])
            _put(plan.stats, slot, statistics)
            _put(plan.kinds, slot, tf.constant(CLOSE_LOOK, tf.int64))
            return tf.reduce_any(statistics[:, kernels.NAN : kernels.NEG_INF + 1] > 0)

        def group(number: int) -> Callable[[], Any]:
            def look() -> Any:
                taken = {i: kernels.statistics(tensors[i]) for i in plan.groups[number]}
                nothing = tf.zeros([kernels.COLUMNS], tf.float64)
                _put(plan.stats, slot, tf.stack([taken.get(i, nothing) for i in range(len(tensors))]))
                _put(plan.kinds, slot, tf.constant(ALL_GROUPS + number, tf.int64))
                return tf.constant(False)

            return look

        def in_turn() -> Any:
            branches = {n: group(n) for n, members in enumerate(plan.groups) if members}
            return tf.switch_case(tf.cast(turn, tf.int32), branches, default=lambda: tf.constant(False))

        def look_at_all() -> Any:
            statistics = [kernels.statistics(t, squares) for t, squares in zip(tensors, cheaply, strict=True)]
            _put(plan.stats, slot, tf.stack(statistics))
            _put(plan.kinds, slot, tf.constant(ALL_GROUPS, tf.int64))
            return tf.constant(False)

        found = tf.constant(False)
        if tensors and plan.compiled:
            found = tf.cond(closer, look_closer, in_turn)
        elif tensors:  # one cond around both: a tensor that a cond may need is a tensor kept
            found = tf.cond(
                tf.logical_or(closer, tf.equal(turn, 0)),
                lambda: tf.cond(closer, look_closer, look_at_all),
                lambda: tf.constant(False),
            )
        # Squares of huge finite numbers overflow; a step that is only that is no trouble, and is looked at every time.
        trouble = found | ~closer | ~tf.reduce_all(tf.math.is_finite(row[len(tensors) :]))
        self.streak.assign(tf.where(suspect & trouble, streak + 1, tf.zeros_like(streak)))
        self.which.assign(plan.index)
        self.clock.assign(clock + 1)

    def write_eagerly(self, plan: Plan, tensors: Sequence[Any], losses: Sequence[Any]) -> None:
        """The same for a step that ran eagerly: one call of a compiled function."""
        signature = tuple(tf.TensorSpec([None] * t.shape.rank, t.dtype) for t in (*tensors, *losses))
        if signature not in plan.measures:
            count = len(tensors)
            plan.measures[signature] = own.function(
                lambda *values: self.write(plan, values[:count], values[count:]), input_signature=signature
            )
        plan.measures[signature](*tensors, *losses)


def _mean(loss: Any) -> Any:
    return tf.reduce_mean(tf.cast(loss, tf.float64))


def _variable(shape: list[int], dtype: Any, name: str) -> Any:
    return tf.Variable(tf.zeros(shape, dtype), trainable=False, name=f"nanwatch_{name}")


def _put(variable: Any, slot: Any, value: Any) -> None:
    variable.scatter_update(tf.IndexedSlices(value[tf.newaxis], slot[tf.newaxis]))
