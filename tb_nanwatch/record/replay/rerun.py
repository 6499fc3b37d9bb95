"""Rewind to the shadow, run the steps since as they ran, the failing one op by op, and say where it broke.

The run's own state is put back before it goes on, bit by bit. What the replay finds is a better Origin than the
recorder's; where it finds nothing, it says why.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from types import CodeType
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tb_nanwatch.format.records import Counts, Origin
from tb_nanwatch.record import distribution, kernels
from tb_nanwatch.record.collect import Collector, paused
from tb_nanwatch.record.optimizers import first_values
from tb_nanwatch.record.replay import (
    compiled,
    draws,
    observe,
    origin,
    provenance,
    redrawn,
    slots,
    source,
    trials,
    unseen,
)
from tb_nanwatch.record.replay.memory import Call, Memory, Ways
from tb_nanwatch.record.replay.observe import BACKWARD, FORWARD, UPDATE, Node, Observation
from tb_nanwatch.record.replay.origin import Found
from tb_nanwatch.record.replay.state import State
from tb_nanwatch.record.replay.trials import Subject
from tb_nanwatch.record.retrospect import Retrospect

INITIAL: Final = 8  # an incident before this step may be the initial weights' doing


@dataclass(frozen=True)
class Outcome:
    """What a replay found. `extra` is what the typed record has no field for."""

    origin: Origin | None
    extra: dict[str, Any]
    failing: Call | None = None
    before: State | None = None  # the failing call
    interrupt: KeyboardInterrupt | None = None  # the user's, while remedies were tried

    def as_json(self) -> str:
        return json.dumps(self.extra, sort_keys=True)


@dataclass(frozen=True)
class Trials:
    """Whom to try remedies on, and for how many seconds."""

    subject: Subject
    seconds: float


def investigate(
    memory: Memory,
    ways: Ways,
    step: int,
    coarse: Origin,
    collector: Callable[[], Collector],
    under_xla: bool,
    wanted: Trials | None,
    looking: Retrospect | None = None,
) -> Outcome:
    """Replay the steps up to `step`; `coarse` is the origin that the recorder saw.

    `collector` makes a Collector for a step that runs eagerly; `looking` looks at every step that runs again as it
    ran. All state is put back, also after an error.
    """
    calls = memory.until(step)
    if memory.shadow is None or not calls:
        return Outcome(None, {"replay": "not possible", "why": "the state before this step was not kept"})
    shadow = memory.shadow
    if calls[0].step == 0:  # optimizers make what they need in the first step
        others = first_values(ways.optimizer)
        memory.handles.add_variables(variable for variable, _ in others)
        shadow = shadow.with_others(others)
    now = State.now(memory.handles)
    try:
        with _muted(), paused():
            shadow.put_back()
            if looking is not None:
                looking.begin(len(calls))
            for call in calls[:-1]:
                _again(call, ways, looking)
            failing = calls[-1]
            if failing.randomness is not None:
                failing.randomness.put_back()
            before = State.now(memory.handles)
            if looking is not None:
                _again(failing, ways, looking)
            for number in _replicas(coarse, collector().names.strategy):
                mine = replace(failing, data=distribution.part(failing.data, number))
                blamed = replace(coarse, replica=number) if number > 0 else coarse

                def look(mine: Call = mine, number: int = number) -> Observation:
                    before.put_back()
                    with distribution.as_replica(number):
                        return observe.run(ways, mine, collector())

                def tell(seen: Observation, blamed: Origin = blamed, number: int = number) -> Outcome:
                    return told(seen, blamed, under_xla, len(calls), unseen.why(looking, under_xla, number))

                seen, outcome = redrawn.looked(look, tell, coarse, anew=looking is None)
                if outcome.origin is not None:
                    break
            if outcome.origin is None or outcome.origin.phase == "update":
                again = functools.partial(_again, ways=ways, looking=None)
                gone = slots.lost(shadow, before, calls, seen.slots, memory.handles, again)
                if gone is not None:
                    outcome = _before(outcome, gone, calls, ways, collector(), under_xla, coarse, number)
            if wanted is not None and (outcome.origin or coarse).phase != "metric":  # else no training is to be mended
                xla_only = outcome.extra["replay"] == "reproduced under XLA only"
                deadline = time.monotonic() + wanted.seconds
                from_the_start = calls[0].step == 0 and step < INITIAL
                bench = trials.Bench(
                    wanted.subject,
                    ways,
                    shadow,
                    before,
                    calls,
                    xla_only,
                    from_the_start,
                    deadline,
                    number,
                    coarse.replica < 0 <= number,
                    draws.kernels(seen),
                )
                outcome = _tried(bench, outcome, coarse)
            return replace(outcome, failing=mine, before=before.of_those_in(memory.shadow))
    finally:
        now.put_back()


def _before(
    outcome: Outcome,
    gone: slots.Lost,
    calls: list[Call],
    ways: Ways,
    collector: Collector,
    under_xla: bool,
    coarse: Origin,
    number: int,
) -> Outcome:
    """The outcome where a slot of the optimizer was lost in an earlier step: that step op by op."""
    about = {"name": gone.name, "step": None, "nan": gone.nan, "oldest": calls[0].step}
    if gone.call < 0:
        return replace(outcome, extra=outcome.extra | {"slot": about})
    call = calls[gone.call]
    about["step"] = call.step
    gone.before.put_back()
    if call.randomness is not None:
        call.randomness.put_back()
    with distribution.as_replica(number):
        seen = observe.run(ways, replace(call, data=distribution.part(call.data, number)), collector)
    earlier = told(seen, coarse, under_xla, len(calls))
    found = earlier if earlier.origin is not None else outcome
    return replace(found, extra=found.extra | {"slot": about})


def _again(call: Call, ways: Ways, looking: Retrospect | None) -> None:
    """Run a step again as it ran."""
    if call.randomness is not None:
        call.randomness.put_back()
    with contextlib.nullcontext() if looking is None else looking.at(call.step):
        ways.run(call.data)


def _tried(bench: trials.Bench, outcome: Outcome, coarse: Origin) -> Outcome:
    """The outcome with the trials. Ctrl-C ends them; what was found by then is kept, and the caller passes it on."""
    done: list[dict[str, Any]] = []
    outcome.extra["trials"] = done
    try:
        for entry in trials.run(bench, outcome.origin or coarse, outcome.extra):
            done.append(entry)  # noqa: PERF402  # what was done before an error stays
    except KeyboardInterrupt as interrupt:
        return replace(outcome, interrupt=interrupt)
    except Exception as error:  # the replay's findings are worth having without
        outcome.extra["trials_failed"] = f"{type(error).__name__}: {str(error)[:200]}"
    found = outcome.origin
    if bench.alone and found is not None and not found.samples:  # its values do not say whose they are, as behind a sum
        return replace(outcome, origin=replace(found, samples=bench.alone))
    return outcome


@contextlib.contextmanager
def _muted() -> Any:
    """Prints and summaries of the step are not repeated."""
    with contextlib.redirect_stdout(io.StringIO()), tf.summary.record_if(False):
        yield


def _replicas(coarse: Origin, strategy: Any) -> Sequence[int]:
    """Whose part of the step is looked at: the guilty replica's, else each in turn; -1 without any replicas."""
    if coarse.replica >= 0:
        return (coarse.replica,)
    return (-1,) if strategy is None else range(distribution.replicas(strategy))


def told(seen: Observation, coarse: Origin, under_xla: bool, steps: int, why: str = "") -> Outcome:
    """What an observed step says about the incident whose origin so far is `coarse`; `steps` were run for it.

    why: what to add where nothing bad was seen.
    """
    extra: dict[str, Any] = {"replay": "reproduced", "replayed_steps": steps}
    batch = [(s.name, s.tensor) for s in seen.collector.seen if s.kind == "input"]
    found = origin.find(seen, [t for _, t in batch])
    if found is not None and seen.error is not None:  # behind the fault, such as a collective that one replica misses
        extra["error"] = str(seen.error).splitlines()[0][:500]
    elif seen.error is not None:
        refused = _refused(seen, coarse)
        if refused is not None:
            extra |= {"replay": "refused", "error": str(seen.error).splitlines()[0][:500]}
            return Outcome(refused, extra | _stack(_raised(seen.error)))
        return Outcome(None, {"replay": "failed", "why": f"{type(seen.error).__name__}: {str(seen.error)[:500]}"})
    if found is None and under_xla:
        found = compiled.find(seen)
        extra["replay"] = "reproduced under XLA only"
    if found is None:
        why = f"the step was finite when it ran op by op{why}"
        return Outcome(None, {"replay": "not reproduced", "why": why})
    if found.phase == "input":
        extra |= provenance.bad_input(seen) | _stack(found.node.frames)
        return Outcome(_input_origin(seen, found, coarse, batch), extra)
    extra |= {"graph": origin.neighbourhood(seen, found.node), "fed_by": provenance.fed_by(seen, found.node)}
    extra |= _library(seen, found)
    frames = (_blamed(seen, found.node) or found.node).frames
    return Outcome(_op_origin(seen, found, coarse, batch), extra | _stack(frames))


# ---------------------------------------------------------------- origins


def _op_origin(seen: Observation, found: Found, coarse: Origin, batch: list[tuple[str, Any]]) -> Origin:
    node = found.node
    forward = _forward(seen, node)
    blamed = forward if node.stage == BACKWARD and forward is not None else node
    user, _ = source.locate(blamed.frames, _boundary())
    names = _names(seen)
    outputs = found.outputs or node.outputs
    size = _batch_size(batch)
    return Origin(
        phase=found.phase,
        layer=blamed.layer,
        layer_class=blamed.layer_class,
        tensor=_tensor_name(names, node) or (f"{blamed.layer}/{node.op_type}" if blamed.layer else node.op_type),
        tensor_kind="gradient"
        if node.stage == BACKWARD
        else found.phase
        if found.phase in ("loss", "metric")
        else "activation",
        op_type=node.op_type,
        op_name=f"{blamed.layer}/{node.op_type}" if blamed.layer else node.op_type,
        source=user,
        samples=origin.samples(outputs[0], size) if outputs and node.stage != UPDATE else (),  # those are of weights
        replica=coarse.replica,
        precision="op",
        inputs=origin.operands(seen, node, names),
        output=origin.counts(_with_outputs(node, outputs)),
    )


def _input_origin(seen: Observation, found: Found, coarse: Origin, batch: list[tuple[str, Any]]) -> Origin:
    name, tensor = next((n, t) for n, t in batch if any(observe.state_of(t)))
    array = np.asarray(tensor).astype(np.float64)
    user, _ = source.locate(found.node.frames, _boundary())
    return replace(
        coarse,
        phase="input",
        layer="",
        tensor=name,
        tensor_kind="input",
        op_type=found.node.op_type,
        source=user,
        samples=origin.samples(tensor, array.shape[0] if array.ndim else None),
        precision="op",
        inputs=origin.operands(seen, found.node, _names(seen)),
        output=Counts(
            int(np.isnan(array).sum()), int(np.isposinf(array).sum()), int(np.isneginf(array).sum()), array.size
        ),
    )


def _refused(seen: Observation, coarse: Origin) -> Origin | None:
    """The origin where a kernel raised instead of making a bad value, as those of TensorFlow do for invalid labels."""
    error = seen.error
    op = re.search(r"__wrapped__(\w+?)_device_", str(error))
    if not isinstance(error, tf.errors.OpError) or op is None:
        return None
    frames = _raised(error)
    user, _ = source.locate(frames, _boundary())
    inside = any(
        code.co_name == "__call__" and code.co_filename.endswith(("layers/layer.py", "base_layer.py"))
        for code, _ in frames
    )
    return replace(
        coarse,
        phase="forward" if inside else "loss",
        op_type=op.group(1),
        op_name=op.group(1),
        source=user,
        precision="op",
    )


def _raised(error: Exception) -> list[source.Frame]:
    """The stack in which an error was raised, innermost first."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame.f_code, trace.tb_lineno))
        trace = trace.tb_next
    return frames[::-1]


def _stack(frames: list[source.Frame]) -> dict[str, Any]:
    """The user's own lines that led to the origin, innermost first."""
    return {"stack": [asdict(line) for line in source.users(frames, _boundary())]}


def _forward(seen: Observation, node: Node) -> Node | None:
    """The forward op to which a gradient op belongs."""
    if node.forward >= 0:
        return seen.nodes[node.forward]
    for tensor in node.inputs:
        made = seen.producers.get(id(tensor))
        if made is not None and made.stage == FORWARD and made.inputs and made.op_type != "ReadVariableOp":
            return made
    return None


def _library(seen: Observation, found: Found) -> dict[str, Any]:
    """The library's line behind the user's, for those who want to look there."""
    blamed = _blamed(seen, found.node)
    _, library = source.locate((blamed or found.node).frames, _boundary())
    extra: dict[str, Any] = (
        {}
        if library is None
        else {"library": {"file": library.file, "line": library.line, "function": library.function}}
    )
    if blamed is not None and blamed is not found.node:
        extra["forward_op"] = blamed.op_type
    if found.through_where:
        extra["through_where"] = True
    return extra


def _blamed(seen: Observation, node: Node) -> Node | None:
    """The op in the user's program that answers for this one: itself, or the forward op of a gradient."""
    return _forward(seen, node) if node.stage == BACKWARD else node


def _names(seen: Observation) -> dict[int, str]:
    names = {id(s.tensor): s.name for s in seen.collector.seen if s.kind != "gradient"}
    names |= {id(s.tensor): f"gradient of {s.name}" for s in seen.collector.seen if s.kind == "gradient"}
    for node in seen.nodes:
        if node.op_type == "ReadVariableOp":
            names |= {id(node.outputs[0]): name for name in _variable_name(seen, node.inputs[0])}
        elif node.op_type in observe.IN_PLACE and len(node.inputs) == 3:  # what was there before
            names |= {id(node.inputs[2]): name for name in _variable_name(seen, node.inputs[0])}
    return names


def _variable_name(seen: Observation, handle: Any) -> tuple[str, ...]:
    named = seen.collector.names.by_handle(handle)
    name = seen.slots.get(id(handle), "") if named is None else named.name
    return (name,) if name else ()


def _tensor_name(names: dict[int, str], node: Node) -> str:
    return next((names[id(t)] for t in node.outputs if id(t) in names), "")


def _batch_size(batch: list[tuple[str, Any]]) -> int | None:
    return next((int(t.shape[0]) for _, t in batch if kernels.measurable(t) is not None and t.shape.rank), None)


def _with_outputs(node: Node, outputs: Any) -> Node:
    return node if outputs is node.outputs else replace(node, outputs=tuple(outputs))


def _boundary() -> CodeType:
    return observe.run.__code__
