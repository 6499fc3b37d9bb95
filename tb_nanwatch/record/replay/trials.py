"""Remedies tried on the recorded steps: would training have stayed finite?

Every trial starts from a kept state and runs recorded batches, with one thing changed. It is worth something only
beside a control, the same steps unchanged, which must fail within the same horizon. Nothing of it stays: the caller
puts the state back.

A step is run in one of three ways. What does not change the step's ops (learning rate, batch, initial weights) runs in
the step as it was compiled. What does is built into one more trace of it, shared by all trials through Switches. Where
the step is eager, it runs eagerly from the failing step on, and the replay was the control.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tb_nanwatch.format.records import Origin
from tb_nanwatch.record import distribution
from tb_nanwatch.record.replay import guards, plan, remedies
from tb_nanwatch.record.replay.draws import Kernel
from tb_nanwatch.record.replay.memory import Call, Ways
from tb_nanwatch.record.replay.remedies import Remedy
from tb_nanwatch.record.replay.state import State, draw_elsewhere
from tb_nanwatch.record.replay.switches import Switches

HORIZON: Final = 64  # steps of a trial; batches are used again when they run out
MOST_SAMPLES: Final = 128  # of a batch, tried one by one for bad ones
SHARE: Final = 1 / 3  # of the time left, for one trial
LEAST_SECONDS: Final = 2.0
CONTROL: Final = Remedy("none", "")


@dataclass(frozen=True)
class Subject:
    """What is trained. weights: its variables; learning_rate: a variable or None; last_loss() is the loss of the last
    step that was recorded, None where nobody knows.
    """

    weights: list[Any]
    learning_rate: Any
    last_loss: Callable[[], float | None]


@dataclass(frozen=True)
class Ran:
    """How a trial went. course: the loss at its beginning and at its end, over the same batches where it ran long."""

    finite: bool
    steps: int
    losses: tuple[float, ...] = ()
    course: tuple[float, float] | None = None


@dataclass
class Bench:
    """What trials need. before: the state before the failing step; xla_only: the step fails only where XLA compiles
    it; from_the_start: the shadow is the initial state; kernels: by id of handle; deadline: of time.monotonic().
    replica: whose part is run by hand, -1 where there are none; all_bad: the others' parts fail as well. norms: of the
    gradients before the failing step, once they were seen. alone: the samples that fail alone, once they were sought;
    none where all do.
    """

    subject: Subject
    ways: Ways
    shadow: State
    before: State
    calls: list[Call]
    xla_only: bool
    from_the_start: bool
    deadline: float
    replica: int = -1
    all_bad: bool = False
    kernels: dict[int, Kernel] = field(default_factory=dict)
    norms: list[float] = field(default_factory=list)
    alone: tuple[int, ...] = ()
    _controls: dict[str, Ran] = field(default_factory=dict)
    _traced: Callable[[Any], Any] | None = None
    _switches: Switches | None = None
    _origin: Origin | None = None
    _op_type: str = ""

    @property
    def late(self) -> bool:
        return time.monotonic() > self.deadline

    @property
    def switches(self) -> Switches:
        if self._switches is None:
            self._switches = Switches()
        return self._switches

    # ------------------------------------------------------------ running

    def run(self, remedy: Remedy) -> tuple[Ran, Ran]:
        """(the trial, its control)."""
        if not remedy.switches and not remedy.retrace:
            return self._against("compiled", remedy, lambda r: self._compiled(r, self.ways.run))
        if self.ways.fresh is None:
            seen = Ran(False, 1)  # by the replay, of the unchanged step
            return self._by_hand(remedy), seen
        if remedy.retrace:
            fresh = self.ways.fresh
            return self._against("compiled", remedy, lambda r: self._compiled(r, fresh()))
        return self._against("traced", remedy, lambda r: self._compiled(r, self._shared()))

    def _against(self, way: str, remedy: Remedy, run: Callable[[Remedy], Ran]) -> tuple[Ran, Ran]:
        if way not in self._controls:
            control = CONTROL if way == "compiled" else Remedy("none", "", switches={"guard": False})
            step = self.ways.run if way == "compiled" else self._shared()
            self._controls[way] = self._compiled(control, step)
        control_ran = self._controls[way]
        if control_ran.finite:  # the trial would prove nothing
            return Ran(True, 0), control_ran
        return run(remedy), control_ran

    def _compiled(self, remedy: Remedy, step: Callable[[Any], Any]) -> Ran:
        """From the shadow on: the recorded steps, then their batches again."""
        self.shadow.put_back()
        with ExitStack() as stack:
            stack.enter_context(remedy.applied())
            if remedy.switches:  # a batch of another shape is traced anew, so what is built in stays in force
                stack.enter_context(self._built_in())
                stack.enter_context(self.switches.set(**remedy.switches))
            return self._train(remedy, step, [c.data for c in self.calls])

    def _shared(self) -> Callable[[Any], Any]:
        """The step traced with all switches built in."""
        if self._traced is None:
            assert self.ways.fresh is not None
            self._traced = self.ways.fresh()
        return self._traced

    @contextmanager
    def _built_in(self) -> Iterator[None]:
        """While a step is traced, or runs eagerly, it gets the switches."""
        assert self._origin is not None
        with guards.installed(self._op_type, self._origin, self.switches), self.switches.on(self.ways.optimizer):
            yield

    def _by_hand(self, remedy: Remedy) -> Ran:
        """The failing step and those behind it, eagerly."""
        self.before.put_back()
        was_eager = tf.config.functions_run_eagerly()
        tf.config.run_functions_eagerly(True)
        try:
            with ExitStack() as stack:
                stack.enter_context(remedy.applied())
                stack.enter_context(self._built_in())
                stack.enter_context(self.switches.set(**remedy.switches))
                stack.enter_context(distribution.as_replica(self.replica))
                data = [self.calls[-1].data, *(c.data for c in self.calls[:-1])]
                return self._train(remedy, lambda d: self.ways.by_hand(self.part(d)), data, failing=1)
        finally:
            tf.config.run_functions_eagerly(was_eager)

    def _train(self, remedy: Remedy, step: Callable[[Any], Any], data: list[Any], failing: int = 0) -> Ran:
        """`failing` is the number of the step, from 1, that must have been met; the last of `data` by default."""
        failing = failing or len(data)
        losses: list[float] = []
        horizon = max(HORIZON, len(data))
        now = time.monotonic()
        until = min(self.deadline, now + max(LEAST_SECONDS, (self.deadline - now) * SHARE))
        steps = 0
        while steps < horizon:
            if steps == failing:  # the run has not been further
                draw_elsewhere()
            result = step(remedy.batch(data[steps % len(data)]))
            steps += 1
            loss = self.subject.last_loss() if step is self.ways.run else None
            loss = _loss_in(result) if loss is None else loss
            losses += [] if loss is None else [loss]
            if remedy.name == "none" and step is self._traced and steps < failing:
                self.norms += [n for n in [float(self.switches.seen_norm)] if np.isfinite(n) and n > 0]
            over = steps == horizon or time.monotonic() > until
            look = over or steps % 8 == 0 or steps == failing
            if (loss is not None and not np.isfinite(loss)) or (look and not _finite(self.subject.weights)):
                return Ran(False, steps, _few(losses))
            if over:
                break
        return Ran(steps >= failing, steps, _few(losses), _course(losses, len(data)))

    def part(self, data: Any) -> Any:
        """What is run by hand of a batch: that of a replica where it is split."""
        return distribution.part(data, self.replica)

    def bad_samples(self) -> tuple[int, ...]:
        """Samples of the failing batch that fail alone, each put into a batch that consists of nothing else."""
        data = self.calls[-1].data
        size = remedies.batch_size(self.part(data))
        until = time.monotonic() + (self.deadline - time.monotonic()) * SHARE
        bad = []
        for sample in range(size) if 1 < size <= MOST_SAMPLES else ():
            if time.monotonic() > until:
                return ()
            self.before.put_back()
            try:
                self.ways.run(remedies.pick(data, [sample] * size, self.replica))
            except Exception:  # refused outright
                bad.append(sample)
                continue
            loss = self.subject.last_loss()
            if (loss is not None and not np.isfinite(loss)) or not _finite(self.subject.weights):
                bad.append(sample)
        self.alone = tuple(bad) if len(bad) < size else ()
        return tuple(bad)

    def against(self, origin: Origin, op_type: str) -> None:
        """Which op the guards are for; to be told before anything runs."""
        self._origin, self._op_type = origin, op_type


def run(bench: Bench, origin: Origin, extra: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Try what may help against `origin`, likeliest first, until the time is up; one entry a trial, ready for JSON."""
    op_type = str(extra.get("forward_op") or origin.op_type)
    bench.against(origin, op_type)
    for remedy in plan.remedies_for(bench, origin, guards.guard_of(op_type, origin), bool(extra.get("through_where"))):
        yield from _tried(bench, remedy)


def _tried(bench: Bench, remedy: Remedy | None) -> Iterator[dict[str, Any]]:
    """A remedy, and while they fail what to try otherwise."""
    while remedy is not None:
        if remedy.impossible:
            yield _entry(remedy, "not_run", Ran(False, 0), "not_run", remedy.impossible)
            return
        if bench.late:
            yield _entry(remedy, "not_run", Ran(False, 0), "not_run", "no time was left for it")
            return
        try:
            ran, control = bench.run(remedy)
        except Exception as error:  # it cannot be applied here, which says nothing about the remedy
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            note = (
                f"{type(error).__name__}: {lines[-1][:200] if lines else ''}"  # the last: "in user code:" says nothing
            )
            yield _entry(remedy, "inconclusive", Ran(False, 0), "not_run", note)
            return
        if control.finite:
            note = f"the same {control.steps} steps unchanged were finite, too"
            yield _entry(remedy, "inconclusive", ran, "finite", note)
            return
        yield _entry(remedy, "finite" if ran.finite else "nonfinite", ran, "nonfinite", "")
        if ran.finite:
            return
        remedy = remedy.otherwise


def _entry(remedy: Remedy, outcome: str, ran: Ran, control: str, note: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "remedy": remedy.name,
        "outcome": outcome,
        "steps": ran.steps,
        "control": control,
        "note": "; ".join(part for part in (remedy.note, note) if part),
        "losses": [strict_number(v) for v in ran.losses],
    }
    if ran.course is not None:
        entry["course"] = [strict_number(v) for v in ran.course]
    if remedy.value is not None:
        entry["value"] = remedy.value
    if remedy.setting:
        entry["setting"] = remedy.setting
    if remedy.also:
        entry["also"] = list(remedy.also)
    return entry


def _finite(weights: list[Any]) -> bool:
    return all(bool(tf.reduce_all(tf.math.is_finite(v))) for v in weights)


def _loss_in(result: Any) -> float | None:
    """The loss among a step's results: what is called so, else the first number."""
    if isinstance(result, dict):
        named = [value for key, value in result.items() if "loss" in str(key)]
        result = result.get("loss", named[0] if named else None)
    values = [v for v in tf.nest.flatten(result) if tf.is_tensor(v) and v.dtype.is_floating]
    scalars = [v for v in values if v.shape.rank == 0] or values[:1]
    return float(tf.reduce_mean(tf.cast(scalars[0], tf.float32))) if scalars else None


def _course(losses: list[float], batches: int) -> tuple[float, float] | None:
    """Mean loss over the first and the last round through the batches; over a quarter where there were no two."""
    width = batches if len(losses) >= 2 * batches else len(losses) // 4
    if width < 1 or len(losses) < 4:
        return None
    return float(np.mean(losses[:width])), float(np.mean(losses[-width:]))


def _few(losses: list[float]) -> tuple[float, ...]:
    return tuple(losses[:: max(1, len(losses) // 8)])


def strict_number(value: float) -> float | str:
    """A number as strict JSON holds it: "NaN", "Infinity" or "-Infinity" where it is not finite."""
    return value if np.isfinite(value) else "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
