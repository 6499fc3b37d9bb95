"""Replay of a step of a graph, in a session of its own that the user's session never notices.

The variables are loaded as they were, the steps since are run again, and of the failing one every floating tensor
behind the loss and the gradients is looked at: fetched, or, where loops, branches or functions are among them, seen by
probes in a copy of the graph. An op whose feeds come from a queue or a data set of the user's session cannot run here.
That ends in a plain "not possible".
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tb_nanwatch.format.records import Counts, OperandStats, Origin, Source
from tb_nanwatch.record.graph import alone, observed, probed, trials, walk
from tb_nanwatch.record.graph.memory import Fed, Memory
from tb_nanwatch.record.graph.observed import Seen
from tb_nanwatch.record.replay import source
from tb_nanwatch.record.replay.observe import BACKWARD, FORWARD
from tb_nanwatch.record.replay.origin import NEIGHBOURS
from tb_nanwatch.record.replay.rerun import Outcome
from tb_nanwatch.record.replay.statement import written
from tb_nanwatch.record.replay.trials import SHARE

MOST_SAMPLES: Final = 1024
#: TensorFlow's file that asks each op for its gradient.
_DERIVING: Final = "gradients_util.py"


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
    ends = [end for fed in steps for end in fed.ends(graph)]
    ran = walk.executed({e if isinstance(e, tf.Operation) else e.op for e in ends}, steps[-1].feeds)
    waiting = walk.waits(ran)
    if waiting:
        why = f"{waiting} waits for what a thread of the program brings, which a session of its own does not get"
        return Replayed(None, {"replay": "not possible", "why": why})
    start = time.monotonic()
    tf1 = tf.compat.v1
    with tf1.Session(graph=graph, config=tf1.ConfigProto(device_count={"GPU": 0})) as session:
        try:
            trials.load(session, graph, memory.variables)
            for fed in steps[:-1]:
                session.run(fed.fetches, trials.feeds(graph, fed))
            values = session.run(trials.variables(graph))
            seen = look(session, graph, values, steps[-1], losses, gradients)
            outcome = told(seen, coarse, layers)
            kept = walk.assigned(ran, gradients, steps[-1].feeds) if outcome.origin is None else []
            if kept:  # a moving average, which neither loss nor gradient shows
                trials.load(session, graph, values)
                seen = look(session, graph, values, steps[-1], [*losses, *kept], gradients)
                outcome = told(seen, coarse, layers)
            if seconds:
                outcome = _with_samples(outcome, session, graph, values, seen, [*losses, *gradients], seconds)
                bench = trials.Bench(
                    session, graph, memory.variables, steps, losses, gradients, time.monotonic() + seconds
                )
                outcome.extra["trials"] = _tried(bench, seen, outcome, coarse)
        except tf.errors.OpError as error:
            why = f"the step cannot run in a session of its own: {trials.told(error)[:300]}"
            return Replayed(None, {"replay": "not possible", "why": why})
    outcome.extra.update(replayed_steps=len(steps), seconds=round(time.monotonic() - start, 3))
    return Replayed(outcome.origin, outcome.extra, fed=steps[-1], variables=values)


def _tried(bench: trials.Bench, seen: Seen, outcome: Outcome, coarse: Origin) -> list[dict[str, Any]]:
    origin = outcome.origin or coarse
    if outcome.origin is not None and origin.op_name and origin.phase != "input":
        bench.op = _op_of_trials(seen, origin.op_name)
    done: list[dict[str, Any]] = []
    try:
        for entry in trials.run(bench, origin, bool(outcome.extra.get("through_where"))):
            done.append(entry)  # noqa: PERF402  # what was done before an error stays
    except tf.errors.OpError as error:
        outcome.extra["trials_failed"] = trials.told(error)[:300]
    return done


def _with_samples(
    outcome: Outcome,
    session: Any,
    graph: Any,
    variables: Mapping[str, Any],
    seen: Seen,
    ends: Sequence[Any],
    seconds: float,
) -> Outcome:
    """The outcome, with the samples that fail alone where the values of the origin do not say whose they are.

    `variables` are those before the step, by name.
    """
    origin = outcome.origin
    if origin is None or origin.samples or origin.phase == "input":
        return outcome
    trials.load(session, graph, variables)
    found = alone.bad_samples(session, graph, seen.feeds, ends, time.monotonic() + seconds * SHARE)
    return replace(outcome, origin=replace(origin, samples=found))


def _op_of_trials(seen: Seen, name: str) -> Any:
    """The forward op, of the user's graph, of the origin that is called so."""
    op = next(op for op in seen.makers() if seen.original(op).name == name)
    original = seen.original(op)
    return original if op in seen.forward or _lines_of_gradient(original) else seen.original(seen.forward_of(op))


def look(
    session: Any, graph: Any, variables: Mapping[str, Any], fed: Fed, losses: Sequence[Any], gradients: Sequence[Any]
) -> Seen:
    """The values of the step `fed`; `variables` are those that the session holds, by name. Raises OpError."""
    _, ran = observed.executed(losses, gradients, fed.feeds)
    fed = replace(fed, feeds={**fed.feeds, **_delivered(session, graph, ran, fed)})
    if any(map(walk.goes_inside, ran)):
        try:
            return probed.look(graph, variables, fed, losses, gradients)
        except (
            tf.errors.OpError,
            ValueError,
            TypeError,
            KeyError,
        ) as error:  # what TensorFlow cannot inline, or import
            logging.getLogger(__name__).debug("the ops inside loops and branches are not seen", exc_info=error)
    return observed.fetched(session, graph, fed, losses, gradients)


def _delivered(session: Any, graph: Any, ran: Sequence[Any], fed: Fed) -> dict[str, Any]:
    """What a data set puts out at a step, by the names of the tensors: once, since the next time it is another."""
    wanted = [
        t
        for op in ran
        if op.type.startswith(walk.FEEDING) and not walk.goes_inside(op)
        for t in op.outputs
        if t.name not in fed.feeds
        and t.dtype not in (tf.resource, tf.variant)
        and not t.dtype._is_ref_dtype
        and graph.is_fetchable(t)
    ]
    return dict(zip([t.name for t in wanted], session.run(wanted, trials.feeds(graph, fed)), strict=True))


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
                tensor=tensor.op.name if len(tensor.op.outputs) == 1 else tensor.name,
                tensor_kind="input",
                samples=_rows(value, len(value) if value.ndim else 0),
                precision="op",
                output=_counts([value]),
            ),
            {"replay": "reproduced"},
        )
    for op in seen.makers():
        reached = seen.reaches(list(op.outputs))
        if reached:
            return _found(seen, op, reached, layers)
    return Outcome(None, {"replay": "not reproduced", "why": "every tensor of the step was finite when it ran again"})


def _found(seen: Seen, op: Any, reached: set[str], layers: Sequence[str]) -> Outcome:
    backward = op not in seen.forward
    written_out = backward and bool(_lines_of_gradient(seen.original(op)))
    forward = seen.forward_of(op) if backward and not written_out else op
    if forward is not op and seen.makes(forward) and seen.is_thrown_away(forward):
        op, backward, reached = forward, False, set()
    brought_back = not backward and "loss" not in reached  # by the gradient
    user = seen.original(op)
    layer = _layer(seen.original(forward), layers)
    phase = "backward" if backward or brought_back else "forward" if layer else "loss"
    extra: dict[str, Any] = {"replay": "reproduced"}
    if forward is not op:
        extra["forward_op"] = forward.type
    if brought_back and seen.is_thrown_away(op):
        extra["through_where"] = True
    lines = _lines_of_gradient(user) if written_out else _lines(seen.original(forward))
    extra["stack"] = [asdict(line) for line in lines]
    extra["graph"] = _neighbourhood(seen, op, layers)
    outputs = [np.asarray(seen.values[t.name], np.float64) for t in op.outputs if t.name in seen.values]
    size = next((len(v) for v in map(np.asarray, seen.feeds.values()) if v.ndim), 0)
    origin = Origin(
        phase=phase,
        layer=layer if phase == "forward" else "",
        tensor=user.outputs[0].name.removesuffix(":0"),
        tensor_kind="gradient" if backward else "activation" if phase == "forward" else "loss",
        op_type=op.type,
        op_name=user.name,
        source=next(iter(lines), None),
        samples=_rows(outputs[0], size) if outputs else (),
        precision="op",
        inputs=tuple(_operand(named, seen.value(op, t)) for t, named in zip(op.inputs, user.inputs, strict=False)),
        output=_counts(outputs),
    )
    return Outcome(origin, extra)


def _neighbourhood(seen: Seen, op: Any, layers: Sequence[str]) -> list[dict[str, Any]]:
    """Producers, the origin and consumers, for a small graph."""
    groups = (("producer", seen.producers(op)), ("origin", [op]), ("consumer", seen.consumers(op)))
    found = []
    for role, group in groups:
        for near in group[:NEIGHBOURS]:
            states = [seen.bad(t) for t in near.outputs]
            bad = [name for place, name in enumerate(("nan", "inf")) if any(state[place] for state in states)]
            stage = FORWARD if near in seen.forward else BACKWARD
            layer = _layer(seen.original(near), layers)
            found.append({"role": role, "op_type": near.type, "layer": layer, "stage": stage, "state": bad})
    return found


def _layer(op: Any, layers: Sequence[str]) -> str:
    """The layer whose scope an op lies in. A loop or a function around the layer puts names of its own before it."""
    inside = op._get_control_flow_context() is not None
    return next((n for n in layers if (f"/{n}/" in f"/{op.name}" if inside else op.name.startswith(f"{n}/"))), "")


def _lines_of_gradient(op: Any) -> list[Source]:
    """The lines of a gradient that the user wrote out, as for tf.custom_gradient; none of one that TensorFlow knows."""
    frames = list(op.traceback or ())
    asked = [place for place, f in enumerate(frames) if f.filename.endswith(_DERIVING)]
    return _lines_in(frames[asked[-1] :]) if asked else []


def _lines(op: Any) -> list[Source]:
    """The lines of the user's own code that made an op, innermost first."""
    return _lines_in(list(op.traceback or ()))


def _lines_in(stack: Sequence[Any], most: int = 8) -> list[Source]:
    frames = [f for f in reversed(stack) if source.is_users(f.filename)]
    return [Source(f.filename, f.lineno or 0, f.name, written(f.filename, f.lineno or 0)) for f in frames[:most]]


def _operand(tensor: Any, value: Any) -> OperandStats:
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
