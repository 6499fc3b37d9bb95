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

from tb_nanwatch.record import distribution, kernels, own
from tb_nanwatch.record.fold import Parts
from tb_nanwatch.record.options import Options
from tb_nanwatch.stats import measures

CLOSE_LOOKS: Final = 16  # steps in a row in trouble that are counted exactly; after that every `every`-th

NOTHING, CLOSE_LOOK = 0, -1  # kinds of a slot's statistics; 1 + g stands for those of group g
ALL_GROUPS: Final = 1


@dataclass
class Plan:
    """What one trace of a step measures, and the slots that it writes to.

    tensors, losses: what is written, e and k numbers; several of one tensor where there are replicas.
    rows float64[slots, e + k]; stats float64[slots, e, measures.COLUMNS]; kinds int64[slots]; groups: which
    tensors share a turn, all in one if there are no turns.
    """

    index: int
    tensors: Parts
    losses: Parts
    groups: tuple[tuple[int, ...], ...]
    compiled: bool
    rows: Any
    stats: Any
    kinds: Any
    measures: dict[Any, Callable[..., Any]] = field(default_factory=dict)  # for eager steps: `write` as tf.functions

    @property
    def ids(self) -> tuple[int, ...]:
        """The tensors, each once."""
        return self.tensors.ids

    @property
    def scalar_ids(self) -> tuple[int, ...]:
        """The losses, each once."""
        return self.losses.ids

    @property
    def folded(self) -> bool:
        """Whether replicas wrote numbers that must be put together."""
        return not (self.tensors.whole and self.losses.whole)


def on_accelerator() -> bool:
    """Whether steps may still run when their call has returned."""
    return bool(tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("TPU"))


class DeviceSide:
    """Variables shared by all plans of a recorder, and the ops that write to them.

    clock int64: steps so far; which int64: the plan that ran last; streak int64: steps in trouble in a row; looking
    bool: steps are looked at closely whatever they are, while a replay runs them again.
    """

    def __init__(self, options: Options, slots: int) -> None:
        self.options = options
        self.slots = slots
        self.plans: list[Plan] = []
        self._by_key: dict[Any, Plan] = {}
        with tf.init_scope():
            self.clock = own.variable(tf.constant(0, tf.int64), "clock")
            self.which = own.variable(tf.constant(-1, tf.int64), "plan")
            self.streak = own.variable(tf.constant(0, tf.int64), "streak")
            self.looking = own.variable(False, "looking")

    def variables(self) -> list[Any]:
        """All that the ops write to."""
        plans = [variable for plan in self.plans for variable in (plan.rows, plan.stats, plan.kinds)]
        return [self.clock, self.which, self.streak, self.looking, *plans]

    def plan(self, tensors: Sequence[tuple[int, int]], losses: Sequence[tuple[int, int]], compiled: bool) -> Plan:
        """The plan for these tensors, made at the first call. Each is given as (id, replica or -1)."""
        key = (tuple(tensors), tuple(losses), compiled)
        if key not in self._by_key:
            parts = Parts.of([i for i, _ in tensors], [r for _, r in tensors])
            loss_parts = Parts.of([i for i, _ in losses], [r for _, r in losses])
            count = len(tensors)
            turns = self.options.every if compiled else 1
            with tf.init_scope():
                self._by_key[key] = Plan(
                    len(self.plans),
                    parts,
                    loss_parts,
                    tuple(tuple(range(turn, len(parts.ids), turns)) for turn in range(turns)),
                    compiled,
                    own.variable(tf.zeros([self.slots, count + len(losses)], tf.float64), "rows"),
                    own.variable(tf.zeros([self.slots, count, measures.COLUMNS], tf.float64), "stats"),
                    own.variable(tf.zeros([self.slots], tf.int64), "kinds"),
                )
            self.plans.append(self._by_key[key])
        return self._by_key[key]

    def write(self, plan: Plan, tensors: Sequence[Any], losses: Sequence[Any]) -> None:
        """Add the ops that measure `tensors` and write the row, at the end of the graph being traced."""
        cheap = kernels.finite_flag if plan.compiled else kernels.sum_of_squares
        cheaply = [tf.cast(_beside(t, cheap), tf.float64) for t in tensors]
        numbers = cheaply + [_mean(loss) for loss in losses]
        row = tf.stack(numbers) if numbers else tf.zeros([0], tf.float64)
        with tf.control_dependencies([row]):  # a step that fails on the way, as at the end of the data, is none
            clock = self.clock.read_value()
        slot = clock % self.slots
        turn = clock % self.options.every
        suspect = tf.logical_not(tf.reduce_all(tf.math.is_finite(row)))
        streak = self.streak.read_value()
        closer = tf.logical_and(suspect, tf.logical_or(streak < CLOSE_LOOKS, tf.equal(turn, 0)))
        closer = tf.logical_or(closer, self.looking.read_value())
        _put(plan.rows, slot, row)
        _put(plan.kinds, slot, tf.constant(NOTHING, tf.int64))

        def look_closer() -> Any:
            statistics = tf.stack([_beside(t, kernels.exact_statistics) for t in tensors])
            _put(plan.stats, slot, statistics)
            _put(plan.kinds, slot, tf.constant(CLOSE_LOOK, tf.int64))
            return tf.reduce_any(statistics[:, measures.NAN : measures.NEG_INF + 1] > 0)

        def group(number: int) -> Callable[[], Any]:
            def look() -> Any:
                mine = plan.tensors.numbers_of(plan.groups[number])
                taken = {i: _beside(tensors[i], kernels.statistics) for i in mine}
                nothing = tf.zeros([measures.COLUMNS], tf.float64)
                _put(plan.stats, slot, tf.stack([taken.get(i, nothing) for i in range(len(tensors))]))
                _put(plan.kinds, slot, tf.constant(ALL_GROUPS + number, tf.int64))
                return tf.constant(False)

            return look

        def in_turn() -> Any:
            branches = {n: group(n) for n, members in enumerate(plan.groups) if members}
            return tf.switch_case(tf.cast(turn, tf.int32), branches, default=lambda: tf.constant(False))

        def look_at_all() -> Any:
            statistics = [_beside(t, kernels.statistics, squares) for t, squares in zip(tensors, cheaply, strict=True)]
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
        self.clock.assign_add(1)  # in one go: another thread's step may have come in between

    def write_eagerly(self, plan: Plan, tensors: Sequence[Any], losses: Sequence[Any]) -> None:
        """The same for a step that ran eagerly: one call of a compiled function."""
        signature = tuple(tf.TensorSpec([None] * t.shape.rank, t.dtype) for t in (*tensors, *losses))
        if signature not in plan.measures:
            count = len(tensors)
            plan.measures[signature] = own.function(
                lambda *values: self.write(plan, values[:count], values[count:]), input_signature=signature
            )
        plan.measures[signature](*tensors, *losses)


def _beside(tensor: Any, kernel: Callable[..., Any], *more: Any) -> Any:
    with distribution.beside(tensor):
        return kernel(tensor, *more)


def _mean(loss: Any) -> Any:
    return tf.reduce_mean(tf.cast(loss, tf.float64))


def _put(variable: Any, slot: Any, value: Any) -> None:
    variable.scatter_update(tf.IndexedSlices(value[tf.newaxis], slot[tf.newaxis]))
