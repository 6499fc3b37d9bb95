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
from tensorflow.python.ops import script_ops

from tb_nanwatch.record.graph import observed, trials, walk
from tb_nanwatch.record.graph.flat import Flat, flatten
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
    own = trials.variables(graph)
    starts = [v.initializer for v in own.values()]
    values = [start.inputs[1] for start in starts]
    keep = [op.name for start, value in zip(starts, values, strict=True) for op in (start, value.op)]
    copy = flatten(graph, losses, gradients, keep, fed.feeds)
    forward, ran = observed.executed(copy.losses, copy.gradients, fed.feeds)
    log = _Log()
    probes = [p for op in ran if (p := _probe(op, fed.feeds, log)) is not None]
    with tf.Graph().as_default() as instrumented:
        tokens = [script_ops._py_funcs.insert(probe) for probe in probes]
        tf.import_graph_def(_behind(copy, probes, tokens), name="")
        with tf.compat.v1.Session(graph=instrumented, config=_config()) as session:
            given = {v.name: variables[n] for n, v in zip(own, values, strict=True) if n in variables}
            session.run([start.name for start in starts], given)
            ends = [*copy.losses, *copy.gradients]
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


def _behind(copy: Flat, probes: Sequence[_Probe], tokens: Sequence[str]) -> Any:
    """The definition of the copy with the probes behind their ops."""
    definition = type(copy.definition)()
    definition.CopyFrom(copy.definition)
    instead = {
        t.name: f"{_PREFIX}{number}:{place}" for number, p in enumerate(probes) for place, t in enumerate(p.outputs)
    }
    for node in definition.node:
        for place, name in enumerate(node.input):
            full = name if ":" in name else f"{name}:0"
            node.input[place] = instead.get(full, name)
    for number, (probe, token) in enumerate(zip(probes, tokens, strict=True)):
        taken = [instead.get(t.name, t.name) for t in probe.inputs]
        node = definition.node.add(name=f"{_PREFIX}{number}", op="PyFunc")
        node.input.extend([*(t.name for t in probe.outputs), *taken])
        node.attr["token"].s = token.encode()
        node.attr["Tin"].list.type.extend(t.dtype.as_datatype_enum for t in (*probe.outputs, *probe.inputs))
        node.attr["Tout"].list.type.extend(t.dtype.as_datatype_enum for t in probe.outputs)
    return definition


def _config() -> Any:
    """One op after another, none moved or merged: then the order tells what came first."""
    config = tf.compat.v1.ConfigProto(
        device_count={"GPU": 0}, inter_op_parallelism_threads=1, allow_soft_placement=True
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    return config
