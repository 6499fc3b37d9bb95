"""Remedies tried on the recorded steps: would training have stayed finite?

Every trial starts from a kept state and runs recorded batches, with one thing changed. It is worth something only
beside a control, the same steps unchanged, which must fail within the same horizon. Nothing of it stays: the caller
puts the state back.

Where the compiled step can be used (learning rate, batch, initial weights), a trial runs from the shadow on. Remedies
that change ops run the failing step and some behind it: eagerly, or traced anew where only XLA fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tb_nanwatch.format.records import Origin
from tb_nanwatch.record import distribution
from tb_nanwatch.record.replay import remedies
from tb_nanwatch.record.replay.memory import Call, Ways
from tb_nanwatch.record.replay.remedies import Remedy
from tb_nanwatch.record.replay.state import State

HORIZON: Final = 64  # steps of a compiled trial; batches are used again when they run out
FEW: Final = 5  # steps of a trial that is not compiled, or compiled for it alone
MOST_SAMPLES: Final = 128  # of a batch, tried one by one for bad ones


@dataclass(frozen=True)
class Subject:
    """What is trained. weights: its variables; learning_rate: a variable or None; last_loss() is the loss of the last
    step that was recorded, None where nobody knows.
    """

    weights: list[Any]
    learning_rate: Any
    last_loss: Callable[[], float | None]


@dataclass(frozen=True)
class Bench:
    """What trials need. before: the state before the failing step; from_the_start: the shadow is the initial state;
    xla_only: the step fails only where XLA compiles it; deadline: of time.monotonic().
    """

    subject: Subject
    ways: Ways
    shadow: State
    before: State
    calls: list[Call]
    xla_only: bool
    from_the_start: bool
    deadline: float
    replica: int = -1  # whose part is run by hand, in a distributed training

    @property
    def late(self) -> bool:
        return time.monotonic() > self.deadline


@dataclass(frozen=True)
class Ran:
    """How a trial went."""

    finite: bool
    steps: int
    losses: tuple[float, ...] = ()


def run(bench: Bench, origin: Origin, extra: dict[str, Any]) -> list[dict[str, Any]]:
    """Try what may help against `origin`, likeliest first, until the time is up; one entry a trial, ready for JSON."""
    control = "nonfinite" if not _from_shadow(bench, Remedy("none", "")).finite else "finite"
    told = []
    for remedy in _plan(bench, origin, extra):
        if bench.late:
            told.append(_entry(remedy, "not_run", 0, control, "no time was left for it"))
            continue
        try:
            told.append(_try(bench, remedy, control))
        except Exception as error:  # it cannot be applied here, which says nothing about the remedy
            told.append(_entry(remedy, "inconclusive", 0, control, f"{type(error).__name__}: {str(error)[:200]}"))
    return told


def _plan(bench: Bench, origin: Origin, extra: dict[str, Any]) -> list[Remedy]:
    op = str(extra.get("forward_op") or origin.op_type)
    guard = remedies.guard_op(op, origin, bool(extra.get("through_where")))
    data = bench.calls[-1].data
    planned = [] if guard is None or origin.phase == "input" else [guard]
    bad = origin.samples or _bad_samples(bench)
    if bad and len(bad) < remedies.batch_size(data):
        planned.append(remedies.replace_samples(tuple(bad), data))
    scaled = remedies.scale_inputs(data)
    if scaled is not None:
        planned.append(scaled)
    if bench.subject.learning_rate is not None:
        planned += [remedies.lower_learning_rate(bench.subject.learning_rate, factor) for factor in (0.1, 0.01)]
    if bench.from_the_start:
        planned.insert(0, remedies.initializer(bench.subject.weights))
    if bench.ways.fresh is not None and hasattr(bench.ways.optimizer, "global_clipnorm"):
        planned.append(remedies.clip_gradients(bench.ways.optimizer, "global_clipnorm", 1.0))
        planned.append(remedies.clip_gradients(bench.ways.optimizer, "clipvalue", 0.5))
    return planned


def _try(bench: Bench, remedy: Remedy, control: str) -> dict[str, Any]:
    if not remedy.retrace:
        ran = _from_shadow(bench, remedy)
    elif remedy.name == "clip_gradients" or bench.xla_only:
        ran = _traced_anew(bench, remedy)
    else:
        ran, control = _by_hand(bench, remedy), "nonfinite"  # as the replay has just shown of the unchanged step
    if control == "finite":
        return _entry(
            remedy, "inconclusive", ran.steps, control, "the same steps unchanged were finite, too", ran.losses
        )
    return _entry(remedy, "finite" if ran.finite else "nonfinite", ran.steps, control, "", ran.losses)


def _entry(
    remedy: Remedy, outcome: str, steps: int, control: str, note: str, losses: tuple[float, ...] = ()
) -> dict[str, Any]:
    return {
        "remedy": remedy.name,
        "outcome": outcome,
        "steps": steps,
        "control": control,
        "note": "; ".join(part for part in (remedy.note, note) if part),
        "losses": [_strict(v) for v in losses],
    }


# ---------------------------------------------------------------- ways to run a trial


def _from_shadow(bench: Bench, remedy: Remedy) -> Ran:
    """The compiled step from the shadow on: the recorded steps, then their batches again up to HORIZON."""
    bench.shadow.put_back()
    with remedy.applied():
        return _train(bench, remedy, bench.ways.run, [c.data for c in bench.calls], HORIZON)


def _traced_anew(bench: Bench, remedy: Remedy) -> Ran:
    """A step traced with the remedy in force, compiled as the run's is, from the shadow on."""
    assert bench.ways.fresh is not None
    bench.shadow.put_back()
    with remedy.applied():
        return _train(bench, remedy, bench.ways.fresh(), [c.data for c in bench.calls], HORIZON)


def _by_hand(bench: Bench, remedy: Remedy) -> Ran:
    """The failing step and a few more, eagerly."""
    bench.before.put_back()
    was_eager = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        with remedy.applied(), distribution.as_replica(bench.replica):
            data = [bench.calls[-1].data, *(c.data for c in bench.calls[: FEW - 1])]
            return _train(bench, remedy, bench.ways.by_hand, data, len(data))
    finally:
        tf.config.run_functions_eagerly(was_eager)


def _train(bench: Bench, remedy: Remedy, step: Callable[[Any], Any], data: list[Any], horizon: int) -> Ran:
    losses: list[float] = []
    horizon = max(horizon, len(data))
    for number in range(horizon):
        result = step(remedy.batch(data[number % len(data)]))
        loss = bench.subject.last_loss() if step is bench.ways.run else _loss_in(result)
        losses += [] if loss is None else [loss]
        last = number == horizon - 1 or bench.late
        bad = loss is not None and not np.isfinite(loss)
        if bad or ((last or number % 8 == 7 or number == len(data) - 1) and not _finite(bench.subject.weights)):
            return Ran(False, number + 1, _few(losses))
        if last:  # the failing batch must have been met
            return Ran(number + 1 >= len(data), number + 1, _few(losses))
    return Ran(True, horizon, _few(losses))


def _bad_samples(bench: Bench) -> tuple[int, ...]:
    """Samples of the failing batch that fail alone, each put into a batch that consists of nothing else."""
    data = bench.calls[-1].data
    size = remedies.batch_size(data)
    if not 1 < size <= MOST_SAMPLES:
        return ()
    bad = []
    for sample in range(size):
        if bench.late:
            return ()
        bench.before.put_back()
        try:
            bench.ways.run(remedies.pick(data, [sample] * size))
        except Exception:  # refused outright
            bad.append(sample)
            continue
        loss = bench.subject.last_loss()
        if (loss is not None and not np.isfinite(loss)) or not _finite(bench.subject.weights):
            bad.append(sample)
    return tuple(bad)


def _finite(weights: list[Any]) -> bool:
    return all(bool(tf.reduce_all(tf.math.is_finite(v))) for v in weights)


def _loss_in(result: Any) -> float | None:
    """The loss among a step's results: what is called so, else the only number."""
    if isinstance(result, dict):
        result = result.get("loss")
    values = [v for v in tf.nest.flatten(result) if tf.is_tensor(v) and v.dtype.is_floating]
    return float(tf.reduce_mean(tf.cast(values[0], tf.float32))) if len(values) == 1 else None


def _few(losses: list[float]) -> tuple[float, ...]:
    return tuple(losses[:: max(1, len(losses) // 8)])


def _strict(value: float) -> Any:
    return value if np.isfinite(value) else "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
