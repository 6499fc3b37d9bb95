"""The half of the recorder that lives on the host: reads what each step wrote, and passes it to the writer.

Everything here runs inside the guard. On a CPU a step is read as soon as its call has returned; on an accelerator one
call later, so that the host never waits for the device.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tb_nanwatch.errors import NonFiniteError, UsageError
from tb_nanwatch.format.records import Incident, Note, RunHeader, TensorInfo
from tb_nanwatch.record import history, hooks
from tb_nanwatch.record.collect import Collector, Seen, collecting, paused
from tb_nanwatch.record.device import DeviceSide, Plan
from tb_nanwatch.record.fusion import in_xla
from tb_nanwatch.record.guard import Guard
from tb_nanwatch.record.incidents import Change, Incidents
from tb_nanwatch.record.naming import Names
from tb_nanwatch.record.options import Options
from tb_nanwatch.record.probe import Launched, Probe, Scalars
from tb_nanwatch.record.rows import StepRows
from tb_nanwatch.record.writer import RunWriter

ORDER_STRIDE: Final = 1000  # room for the tensors of a layer between two places in forward order

_open: weakref.WeakSet[Recorder] = weakref.WeakSet()


class Recorder:
    """Records one training. Entry points call `run_step` around the step and `after_call` when it has returned.

    They also call `close`, at the latest when the process ends.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        options: Options,
        names: Names,
        scalars: Scalars,
        entry_point: str,
        slots: int = 1,
        scaled: bool = False,
    ) -> None:
        self.options = options
        self.names = names
        self.guard = Guard(self._on_disable)
        self.stop_requested = False  # by a bad step of the newest call, with on_nonfinite="stop"
        self._scalars = scalars
        self._scaled = scaled
        self._lock = threading.RLock()  # a step may be called from several threads; a signal handler may close
        self._pid = os.getpid()
        self._closed = False
        self._tensors: dict[tuple[str, str], TensorInfo] = {}
        self._by_id: dict[int, TensorInfo] = {}
        self._declared = 0
        self._layer_order: dict[str, int] = {}
        self._copies: Any = {}
        for earlier in list(_open):  # a notebook cell that ran twice
            if earlier.names.handles() == names.handles():
                earlier.close()
        path = Path(logdir)
        past = history.read(path) if path.is_dir() else history.History()
        done = -1 if scalars.iterations is None else int(np.asarray(scalars.iterations))
        self.first_step = past.step_after(0 if past.same_process else done)
        try:
            self._writer = RunWriter(
                path, self._header(past, entry_point), options.disk_megabytes << 20, on_failure=self._on_writer_failure
            )
        except OSError as error:
            raise UsageError(f"the logdir {os.fspath(logdir)!r} cannot be written: {error.strerror or error}") from error
        self._device = DeviceSide(options, slots)
        self._weights = [v for v in names.variables if options.wants(v.name, v.layer)]
        poisoned = any(not tf.reduce_all(tf.math.is_finite(v.variable)) for v in self._weights)
        self._incidents = Incidents(options.on_nonfinite, past.next_incident, weights_bad=poisoned)
        self._asynchronous = bool(tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("TPU"))
        self._probe = Probe(self._device, self._weights, names.metrics, scalars, on_cpu=not self._asynchronous)
        scale = scalars.current_loss_scale()
        self._rows = StepRows(self._writer, self._probe, self._weight_infos, scale, self.first_step)
        self._pending: Launched | None = None
        self._say_where_it_starts(past)
        _open.add(self)

    # ------------------------------------------------------------ around a step

    def run_step(self, step: Callable[..., Any], arguments: Sequence[Any], names: list[str] | None = None) -> Any:
        """`step(*arguments)`, watched: at trace time inside a graph, at every step where it runs eagerly."""
        if not self.guard.alive or self._closed or os.getpid() != self._pid:
            return step(*arguments)
        collector = Collector(self.names, self.options, self.guard, copies=self._copies)
        with hooks.installed(self.guard), collecting(collector):
            with self.guard.contained("reading the inputs of a step"):
                inputs = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], list | tuple | dict) else arguments
                collector.inputs(inputs, names)
            outputs = step(*arguments)
        with self._lock, self.guard.contained("adding statistics to a step"), paused():
            self._finish(collector)
        return outputs

    def after_call(self) -> None:
        """Read the step whose call has just returned. Raises NonFiniteError if the user asked for it."""
        if not self.guard.alive or self._closed or os.getpid() != self._pid:
            return
        before = self._incidents.bad_steps
        with self._lock, self.guard.contained("reading a step"), paused():
            plan = self._latest_plan()
            launched: Launched | None = self._probe.launch(plan)
            if self._asynchronous:
                launched, self._pending = self._pending, launched
            if launched is not None:
                self._take_all(launched)
        bad = self._incidents.bad_steps > before
        self.stop_requested = bad and self.options.on_nonfinite == "stop"
        if bad and self.options.on_nonfinite == "raise":
            self.close()
            assert self._incidents.newest is not None
            raise NonFiniteError(_sentence(self._incidents.newest), _as_dict(self._incidents.newest))

    @property
    def running(self) -> bool:
        """False once it was closed or its own failure switched it off."""
        return self.guard.alive and not self._closed

    def note(self, kind: str, text: str) -> None:
        self._writer.event(Note(self._rows.next_step, kind, text))

    def flush(self) -> None:
        """Hand all that is gathered to the disk."""
        if self._closed or os.getpid() != self._pid:
            return
        with self._lock, self.guard.contained("writing steps"):
            self._drain_pending()
            self._rows.flush()
            self._writer.flush()

    def close(self) -> None:
        """Write what is left and end. Harmless the second time, in a forked child, and after a failure."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        _open.discard(self)
        with self._lock, self.guard.contained("writing the last steps"):
            self._drain_pending()
            self._rows.flush()
            for change in self._incidents.close():
                self._writer.event(change.incident)
            if self._incidents.uncounted:
                self._writer.event(
                    Note(self._rows.next_step, "uncounted", f"{self._incidents.uncounted} further incidents, not recorded")
                )
        with self.guard.contained("closing the file"):
            self._writer.close()

    # ------------------------------------------------------------ at trace time

    def _finish(self, collector: Collector) -> None:
        """Turn what the hooks saw into a plan, and write it."""
        eager = tf.executing_eagerly()
        seen = collector.readable()
        for layer, number in collector.layer_order.items():
            self._layer_order.setdefault(layer, number)
        infos = [
            self._register(s.kind, s.name, s.layer, s.layer_class, s.tensor.dtype.name, s.shape, number)
            for number, s in enumerate(seen)
        ]
        if self._device.slots > 1:  # several steps in a call: what the host sees afterwards is too late
            seen += [
                Seen("weight", v.name, v.layer, v.layer_class, tf.convert_to_tensor(v.variable)) for v in self._weights
            ]
            infos += self._weight_infos()
        losses = [self._register("loss", name, "", "", loss.dtype.name, (), 0) for name, loss in collector.losses]
        self._weight_infos()
        self._declare()
        plan = self._device.plan([i.id for i in infos], [i.id for i in losses], compiled=in_xla())
        write = self._device.write_eagerly if eager else self._device.write
        write(plan, [tf.convert_to_tensor(s.tensor) for s in seen], [loss for _, loss in collector.losses])

    def _weight_infos(self) -> list[TensorInfo]:
        """Infos of the weights, in the probe's order; registered once the first trace has told the order of layers."""
        return [
            self._register(
                "weight",
                v.name,
                v.layer,
                v.layer_class,
                v.variable.dtype.name.removesuffix("_ref"),
                tuple(v.variable.shape),
                n,
                v.trainable,
            )
            for n, v in enumerate(self._weights)
        ]

    def _register(
        self,
        kind: str,
        name: str,
        layer: str,
        layer_class: str,
        dtype: str,
        shape: tuple[int, ...] | None,
        number: int,
        trainable: bool = False,
    ) -> TensorInfo:
        key = (kind, name)
        if key not in self._tensors:
            order = self._place(layer) * ORDER_STRIDE + number % ORDER_STRIDE
            info = TensorInfo(len(self._tensors) + 1, kind, name, layer, layer_class, dtype, shape, order, trainable)
            self._tensors[key] = self._by_id[info.id] = info
        return self._tensors[key]

    def _place(self, layer: str) -> int:
        """Place of a layer in forward order: its own call, or that of the layer that it is part of."""
        path = layer.partition(":")[0]
        while path:
            if path in self._layer_order:
                return self._layer_order[path] + 1
            path = path.rpartition("/")[0]
        inside = [n for p, n in self._layer_order.items() if layer and p.startswith(layer + "/")]
        return max(inside) + 1 if inside else (len(self._layer_order) + 1 if layer else 0)

    def _declare(self) -> None:
        infos = list(self._tensors.values())
        new, self._declared = infos[self._declared :], len(infos)
        updates = [self._rows.update_info(i) for i in new if i.kind == "weight" and i.trainable]
        scalars = self._rows.scalar_infos() if new and len(new) == len(infos) else []
        self._writer.declare([*new, *updates, *scalars])

    # ------------------------------------------------------------ after a call

    def _latest_plan(self) -> Plan | None:
        plans = self._device.plans
        return plans[0] if len(plans) == 1 else plans[int(self._device.which.numpy())] if plans else None

    def _take_all(self, launched: Launched) -> None:
        for reading in self._probe.arrive(launched):
            state = self._rows.add(reading, self.first_step, self._by_id, self._scaled)
            for change in self._incidents.follow(state):
                self._tell(change)

    def _tell(self, change: Change) -> None:
        if change.urgent:
            self._rows.flush()
        self._writer.event(change.incident, durable=change.urgent)
        if change.opened:
            print(f"tb_nanwatch: {_sentence(change.incident)}", flush=True)

    def _drain_pending(self) -> None:
        if self._pending is not None and self.guard.alive:
            pending, self._pending = self._pending, None
            self._take_all(pending)

    # ------------------------------------------------------------ beginnings and ends

    def _header(self, past: history.History, entry_point: str) -> RunHeader:
        return RunHeader(
            writer_id=secrets.token_hex(4),
            attempt=past.attempts,
            first_step=self.first_step,
            wall_time=time.time(),
            host=socket.gethostname(),
            pid=os.getpid(),
            entry_point=entry_point,
            every=self.options.every,
            versions=history.versions(),
            options=self.options.as_text(),
            error_policy=self.options.on_nonfinite,
        )

    def _say_where_it_starts(self, past: history.History) -> None:
        if past.live is not None:
            text = f"process {past.live} seems to be writing to this logdir too; this recorder is an attempt of its own"
            self.note("shared_logdir", text)
            print(f"tb_nanwatch: {text}", flush=True)
        elif past.attempts:
            self.note("continued" if past.same_process else "restart", f"recorder {past.attempts + 1} of this run")

    def _on_disable(self, reason: str) -> None:
        self._writer.event(Note(self._rows.next_step, "disabled", reason), durable=True)

    def _on_writer_failure(self, error: Exception) -> None:
        self.guard.disable(f"cannot write to the logdir: {error}")


def _sentence(incident: Incident) -> str:
    """One line for the console and for NonFiniteError."""
    origin = incident.origin
    where = {"gradient": "the gradient of ", "weight": "the weight ", "activation": "the output of "}
    what = origin.layer if origin.tensor_kind == "activation" else origin.tensor
    share = f" ({origin.output.bad:,} of {origin.output.size:,} elements)" if origin.output.bad else ""
    return (
        f"step {incident.first_step:,} is not finite: first in {where.get(origin.tensor_kind, f'the {origin.tensor_kind} ')}"
        f"{what}{share}, phase {origin.phase}"
    )


def _as_dict(incident: Incident) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(incident)
