"""Replay of a step of a graph, in a session of its own that the user's session never notices.

The variables are loaded as they were, the steps since are run again, and of the failing one every floating tensor
behind the loss and the gradients is fetched at once. Tensors inside control flow cannot be fetched; an op whose feeds
come from a queue or a data set of the user's session cannot run here. Both end in a plain "not possible" or a coarser
origin.
"""

from __future__ import annotations

import linecache
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tb_nanwatch.format.records import Counts, OperandStats, Origin, Source
from tb_nanwatch.record.graph import trials, walk
from tb_nanwatch.record.graph.memory import Fed, Memory
from tb_nanwatch.record.kernels import FLOATS
from tb_nanwatch.record.replay import origin as eager_origin
from tb_nanwatch.record.replay import source
from tb_nanwatch.record.replay.rerun import Outcome

MOST_SAMPLES: Final = 1024
_SKIPPED: Final = ("Const", "Placeholder", "VariableV2", "VarHandleOp", "ReadVariableOp")
# : ops whose true inputs cannot be fetched, since they lie in a loop, a branch or a list: what they put out was made
# elsewhere
_OPAQUE: Final = ("TensorArray", "TensorList", "Stack", "Exit", "RefExit", "Merge", "RefMerge", "Switch", "RefSwitch")
_OPAQUE_CALLS: Final = (
    "While",
    "StatelessWhile",
    "If",
    "StatelessIf",
    "Case",
    "PartitionedCall",
    "StatefulPartitionedCall",
)


@dataclass
class Seen:
    """Values of the failing step by tensor name, and the graph around them."""

    values: dict[str, Any]
    ops: list[Any]  # in the order in which they were made, which is an order of execution
    forward: set[Any]
    sinks: dict[str, str]  # tensor name -> loss or gradient
    feeds: Mapping[str, Any]
    consumers: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for op in self.ops:
            for tensor in op.inputs:
                self.consumers.setdefault(tensor.name, []).append(op)

    def bad(self, tensor: Any) -> tuple[bool, bool]:
        """(holds NaN, holds an infinity); False for what could not be fetched."""
        value = self.values.get(tensor.name)
        if value is None:
            return False, False
        array = np.asarray(value, np.float64)
        return bool(np.isnan(array).any()), bool(np.isinf(array).any())

    def reaches(self, tensors: Sequence[Any]) -> set[str]:
        """Which sinks the bad ones among tensors damage."""
        found: set[str] = set()
        queue = [t for t in tensors if any(self.bad(t))]
        done: set[str] = set()
        while queue:
            tensor = queue.pop()
            if tensor.name in done:
                continue
            done.add(tensor.name)
            found |= {self.sinks[tensor.name]} if tensor.name in self.sinks else set()
            array = np.asarray(self.values[tensor.name], np.float64)
            masked = not np.isnan(array).any() and not np.isposinf(array).any()
            for op in self.consumers.get(tensor.name, ()):
                if not (masked and op.type in eager_origin.MASKABLE):
                    queue += [t for t in op.outputs if any(self.bad(t))]
        return found

    def made(self, op: Any) -> bool:
        """Whether an op made a NaN from inputs without NaN, or an infinity from finite ones."""
        states, made = [self.bad(t) for t in op.inputs], [self.bad(t) for t in op.outputs]
        nan_in, inf_in = any(n for n, _ in states), any(i for _, i in states)
        nan, inf = any(n for n, _ in made), any(i for _, i in made)
        return (nan and not nan_in) or (inf and not (nan_in or inf_in))

    def is_thrown_away(self, op: Any) -> bool:
        """Whether a tf.where of the forward pass took the bad values of an op, or what they made, and chose others."""
        waiting, done = [op], {op}
        while waiting:
            outputs = [t for t in waiting.pop().outputs if any(self.bad(t))]
            for after in {o for t in outputs for o in self.consumers.get(t.name, ()) if o in self.forward} - done:
                done.add(after)
                spoiled = any(any(self.bad(t)) for t in after.outputs)
                if after.type in eager_origin.SELECTS and not spoiled:
                    return True
                if spoiled:
                    waiting.append(after)
        return False


@dataclass(frozen=True)
class Replayed(Outcome):
    """An Outcome with what the failing step was fed, None if it did not run, and the variables before it by name."""

    fed: Fed | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)


def investigate(
    graph: Any,
    memory: Memory,
    step: int,
    coarse: Origin,
    losses: Sequence[Any],
    gradients: Sequence[Any],
    layers: Sequence[str],
    seconds: float = 60,
) -> Replayed:
    """Replay the steps up to `step` in a session of its own; `coarse` is the origin that the recorder saw.

    Then remedies are tried for `seconds`.
    """
    steps = memory.until(step)
    if not steps or memory.variables is None:
        return Replayed(None, {"replay": "not possible", "why": "the state before this step was not kept"})
    start = time.monotonic()
    tf1 = tf.compat.v1
    with tf1.Session(graph=graph, config=tf1.ConfigProto(device_count={"GPU": 0})) as session:
        try:
            trials.load(session, graph, memory.variables)
            for fed in steps[:-1]:
                session.run(fed.fetches, trials.feeds(graph, fed))
            values = session.run(trials.variables(graph))
            seen = look(session, graph, steps[-1], losses, gradients)
            outcome = told(seen, coarse, layers)
            if seconds:
                bench = trials.Bench(
                    session, graph, memory.variables, steps, losses, gradients, time.monotonic() + seconds
                )
                outcome.extra["trials"] = _tried(bench, seen, outcome, coarse)
        except tf.errors.OpError as error:
            why = f"the step cannot run in a session of its own: {str(error).splitlines()[0][:300]}"
            return Replayed(None, {"replay": "not possible", "why": why})
    outcome.extra.update(replayed_steps=len(steps), seconds=round(time.monotonic() - start, 3))
    return Replayed(outcome.origin, outcome.extra, fed=steps[-1], variables=values)


def _tried(bench: trials.Bench, seen: Seen, outcome: Outcome, coarse: Origin) -> list[dict[str, Any]]:
    origin = outcome.origin or coarse
    if outcome.origin is not None and origin.op_name and origin.phase != "input":
        op = bench.graph.get_operation_by_name(origin.op_name)
        bench.op = op if op in seen.forward else _forward_of(seen, op)
    done: list[dict[str, Any]] = []
    try:
        for entry in trials.run(bench, origin, bool(outcome.extra.get("through_where"))):
            done.append(entry)  # noqa: PERF402  # what was done before an error stays
    except tf.errors.OpError as error:
        outcome.extra["trials_failed"] = str(error).splitlines()[0][:300]
    return done


def look(session: Any, graph: Any, fed: Fed, losses: Sequence[Any], gradients: Sequence[Any]) -> Seen:
    """Every floating tensor behind losses and gradients that can be fetched, at once. Raises OpError."""
    forward = walk.executed([t.op for t in losses], fed.feeds)
    ran = forward | walk.executed([t.op for t in gradients], fed.feeds)
    ops = sorted(ran, key=lambda op: op._id)
    wanted = [
        t
        for op in ops
        if op._get_control_flow_context() is None
        for t in op.outputs
        if t.dtype.base_dtype in FLOATS and t.name not in fed.feeds
    ]
    fetched = session.run(wanted, trials.feeds(graph, fed))
    values = {t.name: v for t, v in zip(wanted, fetched, strict=True)}
    floats = {n: v for n, v in fed.feeds.items() if np.asarray(v).dtype.kind == "f"}
    sinks = dict.fromkeys((t.name for t in gradients), "gradient") | dict.fromkeys((t.name for t in losses), "loss")
    return Seen(values | floats, ops, forward, sinks, fed.feeds)


def told(seen: Seen, coarse: Origin, layers: Sequence[str]) -> Outcome:
    """What the values of a step say about the incident whose origin so far is `coarse`."""
    fed = {t.name: t for op in seen.ops for t in op.inputs if t.name in seen.feeds and any(seen.bad(t))}
    if seen.reaches(list(fed.values())):
        tensor = next(iter(fed.values()))
        value = np.asarray(seen.values[tensor.name], np.float64)
        return Outcome(
            replace(
                coarse,
                phase="input",
                layer="",
                tensor=tensor.name.removesuffix(":0"),
                tensor_kind="input",
                samples=_rows(value, len(value) if value.ndim else 0),
                precision="op",
                output=_counts([value]),
            ),
            {"replay": "reproduced"},
        )
    for op in seen.ops:
        if op.type.startswith(_OPAQUE) or op.type in _OPAQUE_CALLS:
            continue
        if not op.inputs or op.type in _SKIPPED or not seen.made(op):
            continue
        reached = seen.reaches(list(op.outputs))
        if reached:
            return _found(seen, op, reached, layers)
    return Outcome(None, {"replay": "not reproduced", "why": "every tensor of the step was finite when it ran again"})


def _found(seen: Seen, op: Any, reached: set[str], layers: Sequence[str]) -> Outcome:
    backward = op not in seen.forward
    forward = _forward_of(seen, op) if backward else op
    if backward and seen.made(forward) and seen.is_thrown_away(forward):
        op, backward, reached = forward, False, set()
    brought_back = not backward and "loss" not in reached  # by the gradient
    layer = next((n for n in layers if f"/{forward.name}".startswith(f"/{n}/")), "")
    phase = "backward" if backward or brought_back else "forward" if layer else "loss"
    extra: dict[str, Any] = {"replay": "reproduced"}
    if backward:
        extra["forward_op"] = forward.type
    if brought_back and seen.is_thrown_away(op):
        extra["through_where"] = True
    lines = _lines(forward)
    extra["stack"] = [asdict(line) for line in lines]
    outputs = [np.asarray(seen.values[t.name], np.float64) for t in op.outputs if t.name in seen.values]
    size = next((len(v) for v in map(np.asarray, seen.feeds.values()) if v.ndim), 0)
    origin = Origin(
        phase=phase,
        layer=layer if phase == "forward" else "",
        tensor=op.outputs[0].name.removesuffix(":0"),
        tensor_kind="gradient" if backward else "activation" if phase == "forward" else "loss",
        op_type=op.type,
        op_name=op.name,
        source=next(iter(lines), None),
        samples=_rows(outputs[0], size) if outputs else (),
        precision="op",
        inputs=tuple(_operand(seen, t) for t in op.inputs),
        output=_counts(outputs),
    )
    return Outcome(origin, extra)


def _forward_of(seen: Seen, op: Any) -> Any:
    """The op of the forward pass to which a gradient op belongs."""
    original = getattr(op, "_original_op", None)
    if original is not None:
        return original
    return next((t.op for t in op.inputs if t.op in seen.forward and t.op.inputs), op)


def _lines(op: Any, most: int = 8) -> list[Source]:
    """The lines of the user's own code that made an op, innermost first."""
    frames = [f for f in reversed(list(op.traceback or ())) if source.is_users(f.filename)]
    return [
        Source(f.filename, f.lineno or 0, f.name, linecache.getline(f.filename, f.lineno or 0).strip())
        for f in frames[:most]
    ]


def _operand(seen: Seen, tensor: Any) -> OperandStats:
    value = seen.values.get(tensor.name, seen.feeds.get(tensor.name))
    name = tensor.name.removesuffix(":0")
    dtype = tensor.dtype.base_dtype.name
    if value is None:
        return OperandStats(name, dtype)
    array = np.asarray(value, np.float64)
    finite = array[np.isfinite(array)]
    return OperandStats(
        name,
        dtype,
        array.shape,
        float(finite.min()) if finite.size else 0.0,
        float(finite.max()) if finite.size else 0.0,
        int(np.isnan(array).sum()),
        int(np.isinf(array).sum()),
        int((array == 0).sum()),
        int((array < 0).sum()),
    )


def _counts(arrays: Sequence[Any]) -> Counts:
    return Counts(
        sum(int(np.isnan(a).sum()) for a in arrays),
        sum(int(np.isposinf(a).sum()) for a in arrays),
        sum(int(np.isneginf(a).sum()) for a in arrays),
        sum(a.size for a in arrays),
    )


def _rows(array: Any, size: int) -> tuple[int, ...]:
    if not size or array.ndim == 0 or len(array) != size:
        return ()
    bad = ~np.isfinite(array.reshape(size, -1)).all(axis=1)
    return tuple(int(n) for n in np.flatnonzero(bad)[:MOST_SAMPLES])
