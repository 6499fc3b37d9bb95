"""What the ops of a step compute, also inside loops and branches, where nothing can be fetched.

The step runs in a copy of the graph in which a function of ours stands behind every op: it is handed what the op took
in and put out, each time that it runs, and hands on what was put out. It keeps only what is bad.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tb_nanwatch.record.graph import flat, observed, trials, walk
from tb_nanwatch.record.graph.memory import Fed
from tb_nanwatch.record.graph.observed import Seen
from tb_nanwatch.record.kernels import FLOATS

_SHOWN: Final = (*FLOATS, tf.int32, tf.int64, tf.bool)  # what an op's inputs are shown of
_PREFIX: Final = "nanwatch/probe/"


@dataclass
class _Log:
    """What the probes saw."""

    values: dict[str, Any] = field(default_factory=dict)
    taken: dict[str, dict[str, Any]] = field(default_factory=dict)
    made: dict[Any, None] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Probe:
    """Stands behind one op."""

    op: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    log: _Log

    def __call__(self, *arrays: Any) -> Any:
        given, taken = arrays[: len(self.outputs)], arrays[len(self.outputs) :]
        states = [observed.state_of(a) for a in given]
        if any(any(s) for s in states) and self.op not in self.log.made:
            floats = [observed.state_of(a) for t, a in zip(self.inputs, taken, strict=True) if t.dtype in FLOATS]
            made = observed.makes(floats, states)
            if made:
                self.log.made[self.op] = None
            if made or self.op.name not in self.log.taken:
                self._keep(given, taken)
        return given

    def _keep(self, given: Sequence[Any], taken: Sequence[Any]) -> None:
        """Copies: the arrays may lie in memory that TensorFlow uses again."""
        self.log.values.update({t.name: np.array(a) for t, a in zip(self.outputs, given, strict=True)})
        self.log.taken[self.op.name] = {t.name: np.array(a) for t, a in zip(self.inputs, taken, strict=True)}


def look(graph: Any, variables: Mapping[str, Any], fed: Fed, losses: Sequence[Any], gradients: Sequence[Any]) -> Seen:
    """The step `fed` from the values of `variables`, by name. Raises what TensorFlow raises where it cannot run so."""
    copy = flat.flatten(graph, losses, gradients, (), fed.feeds)
    forward, ran = observed.executed(copy.losses, copy.gradients, fed.feeds)
    log = _Log()
    probes = [p for op in ran if (p := _probe(op, fed.feeds, log)) is not None]
    probed = flat.imported(_behind(copy.definition, probes), graph)
    ends = [*copy.losses, *copy.gradients]
    with tf.compat.v1.Session(graph=probed, config=flat.config()) as session:
        trials.load(session, probed, variables)
        got = session.run([t.name for t in ends], dict(fed.feeds))
    log.values.update({t.name: v for t, v in zip(ends, got, strict=True)})
    return Seen(
        log.values | observed.floats(fed.feeds),
        ran,
        forward,
        observed.sinks(copy.losses, copy.gradients),
        fed.feeds,
        log.taken,
        list(log.made),
        copy,
    )


def _probe(op: Any, feeds: Mapping[str, Any], log: _Log) -> _Probe | None:
    if op.type in walk.HANDS_ON or op.type == "Const" or any(t.name in feeds for t in op.outputs):
        return None
    outputs = tuple(t for t in op.outputs if t.dtype in FLOATS)
    return _Probe(op, tuple(t for t in op.inputs if t.dtype in _SHOWN), outputs, log) if outputs else None


def _behind(definition: Any, probes: Sequence[_Probe]) -> Any:
    """The definition with the probes behind their ops, and with loops whose rounds come one after the other."""
    made = type(definition)()
    made.CopyFrom(definition)
    for node in made.node:
        if "parallel_iterations" in node.attr:
            node.attr["parallel_iterations"].i = 1
    instead = {t.name: f"{_PREFIX}{n}:{place}" for n, p in enumerate(probes) for place, t in enumerate(p.outputs)}
    flat.rewire(made.node, instead)
    for number, p in enumerate(probes):
        taken = [(t.name, t.dtype) for t in p.outputs] + [(instead.get(t.name, t.name), t.dtype) for t in p.inputs]
        flat.call_of(made, f"{_PREFIX}{number}", p, taken, len(p.outputs))
    return made
