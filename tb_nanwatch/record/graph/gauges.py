"""The ops that are added to a graph, once, before it is run.

They read what a training step makes anyhow, and only where reading changes nothing. What one call of an optimizer
trains on is packed into one row of cheap numbers, so that a run fetches few tensors; a second array holds the
statistics, taken as the host asks for in `mode`. Nothing is added to the state of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

from tb_nanwatch.record import kernels
from tb_nanwatch.record.collect import Seen
from tb_nanwatch.record.graph import walk
from tb_nanwatch.record.naming import NamedVariable
from tb_nanwatch.stats import measures

NEVER, IN_TROUBLE, ALWAYS = range(3)  # modes: when to take the statistics of a step
SCOPE: Final = "nanwatch"


@dataclass(frozen=True)
class Pack:
    """Tensors that are read together. row float64[m]: sums of squares; look float64[m, COLUMNS], zeros if not taken."""

    members: tuple[Seen, ...]
    row: Any
    look: Any


@dataclass(frozen=True)
class Single:
    """One number of the step: a float64 scalar, and the tensor of the user's from which it is read."""

    name: str
    source: Any
    value: Any


@dataclass(frozen=True)
class Gauges:
    """All that is read. `rate`: the learning rate. weights: squares float64[w] and the values themselves.

    state: values of all variables of the graph by their names. iterations int64 is None where there is no global step.
    """

    mode: Any
    packs: tuple[Pack, ...]
    losses: tuple[Single, ...]
    rate: Single | None
    squares: Any
    weights: tuple[Any, ...]
    iterations: Any
    state: dict[str, Any]


def build(
    graph: Any,
    seen: Sequence[Seen],
    losses: Sequence[tuple[str, Any]],
    rate: Any,
    weights: Sequence[NamedVariable],
    training: Sequence[Any],
) -> Gauges:
    """Add the gauges to `graph`. `training` are its training ops; what of `seen` none of them needs is left out."""
    groups = [walk.executed(group) for group in walk.train_groups(training)]
    apart: dict[tuple[bool, ...], list[Seen]] = {}
    for s in seen:
        membership = tuple(s.tensor.op in group for group in groups)
        if any(membership):
            apart.setdefault(membership, []).append(s)
    everything = {v.op.name: v for v in _all_variables(graph)}
    step = tf.compat.v1.train.get_global_step(graph)
    with graph.as_default(), graph.control_dependencies(None), graph.device(None), tf.compat.v1.name_scope(SCOPE):
        mode = tf.compat.v1.placeholder(tf.int32, [], "mode")
        return Gauges(
            mode,
            tuple(_pack(members, mode) for members in apart.values()),
            tuple(Single(name, t, tf.reduce_mean(tf.cast(t, tf.float64))) for name, t in losses),
            None if rate is None else Single("learning_rate", rate, tf.cast(rate, tf.float64)),
            _row([v.variable.read_value() for v in weights]),
            tuple(v.variable.read_value() for v in weights),
            None if step is None else tf.cast(step.read_value() if hasattr(step, "read_value") else step, tf.int64),
            {name: v.read_value() for name, v in everything.items()},
        )


def _pack(members: list[Seen], mode: Any) -> Pack:
    tensors = [s.tensor for s in members]
    row = _row(tensors)
    nothing = tf.zeros([len(tensors), measures.COLUMNS], tf.float64)
    suspect = tf.logical_not(tf.reduce_all(tf.math.is_finite(row)))

    def exact() -> Any:
        return tf.stack([kernels.exact_statistics(t) for t in tensors])

    def ordinary() -> Any:
        return tf.stack([kernels.statistics(t) for t in tensors])

    wanted = tf.logical_or(tf.equal(mode, ALWAYS), tf.logical_and(tf.equal(mode, IN_TROUBLE), suspect))
    look = tf.cond(wanted, lambda: tf.cond(suspect, exact, ordinary), lambda: nothing)
    return Pack(tuple(members), row, look)


def _row(tensors: Sequence[Any]) -> Any:
    if not tensors:
        return tf.zeros([0], tf.float64)
    return tf.stack([tf.cast(kernels.sum_of_squares(t), tf.float64) for t in tensors])


def _all_variables(graph: Any) -> list[Any]:
    keys = tf.compat.v1.GraphKeys
    return [*graph.get_collection(keys.GLOBAL_VARIABLES), *graph.get_collection(keys.LOCAL_VARIABLES)]
