"""The half of the recorder that lives on the host: reads what each step wrote, and passes it to the writer.

Everything here runs inside the guard. On a CPU a step is read as soon as its call has returned; on an accelerator one
call later, so that the host never waits for the device.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tb_nanwatch.format.records import Incident, Note
from tb_nanwatch.record import distribution, hooks
from tb_nanwatch.record.applied.trial import Trying
from tb_nanwatch.record.collect import Collector, collecting, leaves, paused
from tb_nanwatch.record.device import DeviceSide, Plan, on_accelerator
from tb_nanwatch.record.fusion import in_xla
from tb_nanwatch.record.naming import Names
from tb_nanwatch.record.optimizers import Optimizers
from tb_nanwatch.record.options import Options
from tb_nanwatch.record.probe import Launched, Probe
from tb_nanwatch.record.recording import Recording
from tb_nanwatch.record.replay.capsule import Capsules
from tb_nanwatch.record.replay.rewind import Rewind
from tb_nanwatch.record.replay.trials import Subject
from tb_nanwatch.record.retrospect import Retrospect

_open: weakref.WeakSet[Recorder] = weakref.WeakSet()


class Recorder(Recording):
    """Records one training. Entry points call `run_step` around the step and `after_call` when it has returned.

    They also call `close`, at the latest when the process ends.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        options: Options,
        names: Names,
        optimizers: Optimizers,
        entry_point: str,
        slots: int = 1,
        state: Callable[[], Iterable[Any]] = tuple,
        trying: Trying | None = None,
    ) -> None:
        for earlier in list(_open):
            if names.handles() and earlier.names.handles() == names.handles():
                earlier.supersede(logdir)
            elif earlier.writes_to(logdir):  # its steps are what this one goes on from
                earlier.write_out()
        unsupported = distribution.unsupported(names.strategy)
        if unsupported:  # its variables may be elsewhere
            names, optimizers = Names(), Optimizers()
        self.names: Names = names
        scalars = optimizers.scalars()
        done = -1 if scalars.iterations is None else int(np.asarray(scalars.iterations))
        worker = distribution.worker(names.strategy)
        super().__init__(logdir, options, entry_point, names.variables, done, optimizers.scaled, worker, trying)
        self._copies: Any = {}
        self._optimizers, self._scalars = optimizers, scalars
        self._around_replicas: Collector | None = None
        self._calls = 0
        self._begun = False
        self._replaying = False
        self._interrupt: KeyboardInterrupt | None = None  # the user's, until what the replay found is written
        self._why_not = "" if worker is None else "the workers of a job would have to run its steps again together"
        self.rewind = Rewind(self._say, options, state) if options.replay and worker is None else None
        self._capsules = Capsules(Path(logdir), entry_point, names, options.disk_megabytes << 20)
        self._device = DeviceSide(options, slots)
        self._asynchronous = on_accelerator()
        self._probe = Probe(self._device, self._weights, names.metrics, scalars, on_cpu=not self._asynchronous)
        self._watching = len(self._weights) + len(names.metrics)
        self._pending: Launched | None = None
        bad = [v for v in self._weights if not tf.reduce_all(tf.math.is_finite(v.variable))]
        holding_nan = {v.name: bool(tf.reduce_any(tf.math.is_nan(v.variable))) for v in bad}
        self._start(self._probe, holding_nan, scalars.current_loss_scale())
        if unsupported:
            self.guard.disable(unsupported)
        _open.add(self)

    @property
    def slots(self) -> int:
        """Steps that a call may run."""
        return self._device.slots

    # ------------------------------------------------------------ around a step

    def run_step(self, step: Callable[..., Any], arguments: Sequence[Any], names: list[str] | None = None) -> Any:
        """`step(*arguments)`, watched: at trace time inside a graph, at every step where it runs eagerly."""
        if self.idle:
            return step(*arguments)
        trying = self.trying
        collector = Collector(self.names, self.options, self.guard, copies=self._copies, trying=trying)
        if trying is not None:
            arguments = trying.arguments(arguments)
        if distribution.in_replica():
            collector = self._in_replica(collector)
        around = nullcontext() if trying is None else trying.around()
        with hooks.installed(self.guard), collecting(collector), around:
            with self.guard.contained("reading the inputs of a step"):
                collector.inputs(_batch(arguments), names)
            makes = self.rewind.making() if self.rewind is not None and tf.executing_eagerly() else nullcontext()
            with makes:
                outputs = step(*arguments)
        holding = self._replaying and distribution.in_replica()  # the thread that waits for this one's end
        with nullcontext() if holding else self._lock, self.guard.contained("adding statistics to a step"), paused():
            if not distribution.in_replica():
                self._finish(collector)
            elif self._around_replicas is not None and distribution.is_last_here():
                whole, self._around_replicas = self._around_replicas, None
                with tf.device(None):
                    self._finish(whole)
        return outputs

    def begin(self) -> None:
        """Called before every call; keeps the weights before the first, so that its update is measured too.

        Raises TrialEnded if a trial of a remedy is over.
        """
        if self.trying is not None:
            self.trying.before_step()
        if not self._begun and not self.idle:
            self._begun = True
            with self._lock, self.guard.contained("keeping the weights before the first step"), paused():
                self._probe.remember()

    def before_call(self, data: Any, names: list[str] | None, arguments: Sequence[Any] = ()) -> None:
        """Keep what a replay of the coming call needs; `arguments` are those of the step, `data` without them."""
        step = self.first_step + self._calls
        if not self._first_batches.done:
            with self._lock, self.guard.contained("looking at a batch"), paused():
                batch = _batch(arguments or (data,))
                self._look_at(step, leaves(batch, names), isinstance(batch, dict))
        if self.rewind is not None and self.running and os.getpid() == self._pid:
            with self._lock, self.guard.contained("keeping a batch"), paused():
                self.rewind.before(step, data, names)
        self._calls += 1

    def before_group(self) -> None:
        """Keep what a replay of the coming call, of several steps, needs."""
        if self.rewind is not None and self.running and os.getpid() == self._pid:
            with self._lock, self.guard.contained("keeping the state"), paused():
                self.rewind.before_group(lambda: self.first_step + int(self._device.clock.numpy()))
        self._calls += 1

    def after_call(self) -> None:
        """Read the step whose call has just returned. Raises NonFiniteError if the user asked for it."""
        if self.idle:
            return
        before = self._incidents.bad_steps
        with self._lock, self.guard.contained("reading a step"), paused():
            plan = self._latest_plan()
            launched: Launched | None = self._probe.launch(plan)
            if self._asynchronous:
                launched, self._pending = self._pending, launched
            if launched is not None:
                self._take(self._probe.arrive(launched))
        if self._interrupt is not None:
            interrupt, self._interrupt = self._interrupt, None
            raise interrupt
        self._act(before)

    def validated(self, found: Mapping[str, Any]) -> None:
        """Note what a validation gave, behind the newest step: the loss, and metrics by name."""
        if self.idle:
            return
        with self._lock, self.guard.contained("noting a validation"):
            numbers = {name: float(np.asarray(v)) for name, v in found.items() if np.asarray(v).size == 1}
            told = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
            bad = "" if all(np.isfinite(v) for v in numbers.values()) else " (is its data finite?)"
            if self._incidents.current is not None:
                bad = ""  # the training was bad itself
            self._writer.event(Note(max(self._rows.next_step - 1, 0), "validation", f"validation: {told}{bad}"))

    def close(self) -> None:
        """Write what is left and end. Harmless the second time, in a forked child, and after a failure."""
        _open.discard(self)
        super().close()

    # ------------------------------------------------------------ at trace time

    def _in_replica(self, collector: Collector) -> Collector:
        """The collector of this replica, where the watched step is what every replica runs. They start in order."""
        if self._around_replicas is None or distribution.is_first_here():
            self._around_replicas = collector
        return self._around_replicas.in_replica(distribution.replica())

    def _finish(self, collector: Collector) -> None:
        """Turn what the hooks saw into a plan, and write it."""
        eager = tf.executing_eagerly()
        seen: list[Any] = []  # tensors
        losses: list[Any] = []
        ids: list[tuple[int, int]] = []  # of each, with its replica
        loss_ids: list[tuple[int, int]] = []
        for replica, part in collector.parts():
            for layer, number in part.layer_order.items():
                self._tensors.layer_order.setdefault(layer, number)
            for number, s in enumerate(part.readable()):
                ends = self.names.activation(s.layer) if s.kind == "activation" else ""
                info = self._tensors.register(
                    s.kind, s.name, s.layer, s.layer_class, s.tensor.dtype.name, s.shape, number, activation=ends
                )
                seen.append(tf.convert_to_tensor(s.tensor))
                ids.append((info.id, replica))
            for name, loss in part.losses:
                losses.append(loss)
                loss_ids.append((self._tensors.register("loss", name, "", "", loss.dtype.name, (), 0).id, replica))
        self._look_again(eager)
        weights = self._weight_infos()
        if self._device.slots > 1:  # several steps in a call: what the host sees afterwards is too late
            seen += [tf.convert_to_tensor(v.variable) for v in self._weights]
            ids += [(info.id, -1) for info in weights]
        self._declare()
        if self._optimizers.learn(collector.optimizers):
            self._follow_optimizers()
        plan = self._device.plan(ids, loss_ids, compiled=in_xla())
        write = self._device.write_eagerly if eager else self._device.write
        write(plan, seen, losses)
        if self.rewind is not None and not eager:
            self.rewind.traced(tf.compat.v1.get_default_graph(), in_xla(), self._device.variables())

    def _follow_optimizers(self) -> None:
        """Read the numbers of the optimizers that a step was seen to use."""
        self._scaled, self._scalars = self._optimizers.scaled, self._optimizers.scalars()
        self._probe.follow(self._scalars)
        self._writer.declare(self._rows.follow([name for name, _ in self._scalars.others]))
        with tf.init_scope():
            self._rows.expect_scale(self._scalars.current_loss_scale())

    def _look_again(self, eager: bool) -> None:
        """Weights and metrics that the first steps have made."""
        if not eager or self._calls <= 1:
            self.names.look_again()
        weights = [v for v in self.names.variables if self.options.wants(v.name, v.layer)]
        if len(weights) + len(self.names.metrics) != self._watching:
            self._watching = len(weights) + len(self.names.metrics)
            self._weights = weights
            self._probe.watch(weights, self.names.metrics)

    # ------------------------------------------------------------ after a call

    def _latest_plan(self) -> Plan | None:
        plans = self._device.plans
        return plans[0] if len(plans) == 1 else plans[int(self._device.which.numpy())] if plans else None

    def _steps_to_replay(self, incident: Incident) -> int:
        return 0 if self.rewind is None else self.rewind.steps_until(incident.first_step)

    def _investigate(self, incident: Incident) -> Incident | None:
        """Rewind and replay; what it finds replaces the incident's origin."""
        if self.rewind is None:
            told = json.dumps({"replay": "not possible", "why": self._why_not})
            return self._incidents.improve(incident.id, None, told) if self.options.replay else None
        kept = [(variable, variable.read_value()) for variable in self._device.variables()]
        copies, self._copies = self._copies, {}  # others: a random op in a tf.function goes on where it stopped
        self._replaying = True
        try:
            return self._replayed(incident, self.rewind)
        finally:  # eager steps that run again count, and write, as any other
            self._replaying = False
            self._copies = copies
            for variable, value in kept:
                variable.assign(value)

    def _replayed(self, incident: Incident, rewind: Rewind) -> Incident | None:
        rate = self._scalars.learning_rate
        subject = Subject(
            [v.variable for v in self._weights], rate if hasattr(rate, "assign") else None, self._last_loss
        )
        looking = self._look_back()
        outcome = rewind.investigate(
            incident, lambda: Collector(self.names, self.options, self.guard, copies=self._copies), subject, looking
        )
        if outcome is None:
            return None
        with self.guard.contained("writing the steps before an incident"):
            looking.write(self._writer)
        self._interrupt = outcome.interrupt
        folder = ""
        with self.guard.contained("writing a capsule"):
            folder = rewind.keep(incident, outcome, self._capsules)
        return self._incidents.improve(incident.id, outcome.origin, outcome.as_json(), folder)

    def _look_back(self) -> Retrospect:
        alone = self._device.slots == 1  # else the plan has the weights
        weights = self._weights if alone else []
        return Retrospect(
            self._device,
            self._probe.anew(weights),
            self._weight_infos() if alone else [],
            self._tensors.by_id,
            self._latest_plan,
            self._scalars.current_loss_scale,
            self._rows,
        )

    def _last_loss(self) -> float | None:
        """Loss of the last step that ran through the watched function, recorded or not."""
        plan = self._latest_plan()
        if plan is None or not plan.scalar_ids:
            return None
        slot = (int(self._device.clock.numpy()) - 1) % self._device.slots
        losses = np.asarray(plan.rows)[slot, len(plan.tensors.owner) :]
        return float(plan.losses.total(losses)[0] if plan.folded else losses[0])

    def _drain_pending(self) -> None:
        if self._pending is not None and self.guard.alive:
            pending, self._pending = self._pending, None
            self._take(self._probe.arrive(pending))


def _batch(arguments: Sequence[Any]) -> Any:
    """The batch that a step is called with: its only argument if that has parts, else all of them."""
    alone = len(arguments) == 1 and isinstance(arguments[0], list | tuple | dict)
    return arguments[0] if alone else arguments
