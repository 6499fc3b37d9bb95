"""A run as it is written, whatever trains it: header, tensors, rows, incidents, and its end.

The entry points' recorders derive from this; they know how a step is read. Everything here runs inside the guard.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tb_nanwatch.errors import NanWatchError, NonFiniteError, UsageError
from tb_nanwatch.format.records import Incident, Note, RunHeader, TensorInfo
from tb_nanwatch.record import console, failure, history
from tb_nanwatch.record.applied.trial import TrialEnded, Trying
from tb_nanwatch.record.first_batches import Watch
from tb_nanwatch.record.guard import Guard
from tb_nanwatch.record.incidents import Change, Incidents
from tb_nanwatch.record.judge import Benign
from tb_nanwatch.record.naming import NamedVariable
from tb_nanwatch.record.options import Options
from tb_nanwatch.record.probe import Reading
from tb_nanwatch.record.rows import Statistics, StepRows
from tb_nanwatch.record.tensors import Tensors
from tb_nanwatch.record.writer import RunWriter

STOPPED: Final = ("keras_fit", "hook")  # entry points whose loops can be told to end


class Recording:
    """Base of the recorders.

    `iterations` the training has done already, -1 where nobody counts; `worker` is this process's index among those
    that train together, None where it is alone.

    Raises UsageError if the logdir cannot be written. `_start` must follow.
    """

    _rows: StepRows
    _incidents: Incidents

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        options: Options,
        entry_point: str,
        weights: Sequence[NamedVariable],
        iterations: int = -1,
        scaled: bool = False,
        worker: int | None = None,
        trying: Trying | None = None,
    ) -> None:
        self.options = options
        self.trying = trying  # a remedy, under `nanwatch try`
        self._stops = entry_point in STOPPED
        self.guard = Guard(self._on_disable)
        self.stop_requested = False  # by a bad step of the newest call, with on_nonfinite="stop"
        self._scaled = scaled
        self._lock = threading.RLock()  # a step may be called from several threads; a signal handler may close
        self._pid = os.getpid()
        self._closed = False
        self._raised = 0
        self._first_batches = Watch()
        self._tensors = Tensors()
        self._weights = [v for v in weights if options.wants(v.name, v.layer)]
        self._path = path = Path(logdir)
        self._worker = worker
        self._past = history.read(path, worker) if path.is_dir() else history.History()
        self._done = iterations
        self.first_step = self._past.step_after(iterations)
        try:
            self._writer = RunWriter(
                path,
                self._header(entry_point),
                options.disk_megabytes << 20,
                on_failure=self._on_writer_failure,
                also_scalars=options.also_scalars and not worker,  # one of several workers speaks for all
            )
        except OSError as error:
            raise UsageError(
                f"the logdir {os.fspath(logdir)!r} cannot be written: {error.strerror or error}"
            ) from error

    def _start(self, statistics: Statistics, bad: Mapping[str, bool], loss_scale: float = float("nan")) -> None:
        """Be ready for the first step. `bad`: names of weights that are not finite before it, to whether they hold NaN.

        Infinities that nobody trains are there on purpose: a mask, the best loss so far.
        """
        trained = {v.name for v in self._weights if v.trainable}
        purpose = {name for name, nan in bad.items() if not nan and name not in trained}
        self._incidents = Incidents(
            self.options.on_nonfinite,
            self._past.next_incident,
            frozenset(bad) - purpose,
            Benign({f"weight/{name}" for name in purpose}),
        )
        self._rows = StepRows(self._writer, statistics, self._weight_infos, loss_scale, self.first_step)
        self._say_where_it_starts()

    # ------------------------------------------------------------ for entry points

    @property
    def running(self) -> bool:
        """False once it was closed or its own failure switched it off."""
        return self.guard.alive and not self._closed

    @property
    def idle(self) -> bool:
        """Whether steps must be left alone: not running, or in a forked child."""
        return not self.running or os.getpid() != self._pid

    def note(self, kind: str, text: str) -> None:
        self._writer.event(Note(self._rows.next_step, kind, text))

    def failed(self, error: BaseException) -> None:
        """A step raised: note what, so that a run which ends by it can say why. An interrupt is no failure."""
        if self.idle or not isinstance(error, Exception) or isinstance(error, NanWatchError):
            return
        with self._lock, self.guard.contained("noting the error of a step"):
            text = failure.told(error)
            if text and self._raised < failure.MOST:
                self._raised += 1
                self._drain_pending()
                self._rows.flush()
                self._writer.event(Note(self._rows.next_step, "raised", text), durable=True)

    def flush(self) -> None:
        """Hand all that is gathered to the disk. Raises NonFiniteError as a step does, of one that was on its way."""
        if self._closed or os.getpid() != self._pid:
            return
        before = self._incidents.bad_steps
        self.write_out()
        self._act(before)

    def write_out(self) -> None:
        """Hand all that is gathered to the disk."""
        if not self.idle:
            with self._lock, self.guard.contained("writing steps"):
                self._drain_pending()
                self._rows.flush()
                self._writer.flush()

    def supersede(self, logdir: str | os.PathLike[str]) -> None:
        """End: a recorder for `logdir` watches the same model now. Says so, unless a notebook cell just ran twice."""
        if self.running and not self.writes_to(logdir):
            say_superseded(self._path, logdir)
        self.close()

    def writes_to(self, logdir: str | os.PathLike[str]) -> bool:
        """Whether this is the recording of that folder."""
        return self.running and self._path.resolve() == Path(logdir).resolve()

    def close(self) -> None:
        """Write what is left and end. Harmless the second time, in a forked child, and after a failure."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        with self._lock, self.guard.contained("writing the last steps"):
            self._drain_pending()
            self._rows.flush()
            for change in self._incidents.close():
                self._writer.event(change.incident)
            if self._incidents.uncounted:
                self._writer.event(
                    Note(
                        self._rows.next_step,
                        "uncounted",
                        f"{self._incidents.uncounted} further incidents, not recorded",
                    )
                )
        with self.guard.contained("closing the file"):
            self._writer.close()

    # ------------------------------------------------------------ for the recorders

    def _investigate(self, incident: Incident) -> Incident | None:  # noqa: ARG002
        """The incident as a replay knows it; None where there is none."""
        return None

    def _steps_to_replay(self, incident: Incident) -> int:  # noqa: ARG002
        """How many steps `_investigate` will run again; 0 where there is no replay."""
        return 0

    def _say(self, kind: str, text: str) -> None:
        self.note(kind, text)
        print(f"tb_nanwatch: {text}", flush=True)  # noqa: T201  # users without logging shall see it

    def _look_at(self, step: int, leaves: Iterable[tuple[str, Any]], mapping: bool = False) -> None:
        """Take in what one of the first batches is made of, (name, value) of its parts."""
        if not self.idle:
            found = self._first_batches.look(step, leaves, mapping)
            if found is not None:
                self._writer.event(found)

    def _drain_pending(self) -> None:
        """Take in what is still on its way from the device."""

    def _weight_infos(self) -> list[TensorInfo]:
        """Infos of the weights, in their order; registered once the first trace has told the order of layers."""
        return [
            self._tensors.register(
                "weight",
                v.name,
                v.layer,
                v.layer_class,
                v.variable.dtype.name.removesuffix("_ref"),
                None if v.variable.shape.rank is None else tuple(v.variable.shape.as_list()),
                n,
                v.trainable,
            )
            for n, v in enumerate(self._weights)
        ]

    def _declare(self) -> None:
        new = self._tensors.undeclared()
        updates = [self._rows.update_info(i) for i in new if i.kind == "weight" and i.trainable]
        scalars = self._rows.scalar_infos() if new and len(new) == len(self._tensors.by_id) else []
        self._writer.declare([*new, *updates, *scalars])

    def _take(self, readings: Iterable[Reading]) -> None:
        """Write steps, oldest first, and tell what happened in them."""
        for reading in readings if self.trying is None else map(self.trying.as_applied, readings):
            state = self._rows.add(reading, self.first_step, self._tensors.by_id, self._scaled)
            for change in self._incidents.follow(state):
                self._tell(change)
            self._look_ahead()

    def _look_ahead(self) -> None:
        """Say once that an overflow is to come; while an incident lasts there is nothing to foresee."""
        if self._incidents.current is not None:
            self._rows.look_anew()
            return
        warning = self._rows.look_ahead()
        if warning is not None and not self._worker:  # one of several workers speaks for all
            self._say("forecast", warning)

    def _act(self, bad_steps_before: int) -> None:
        """What the user asked for when a step is bad. Raises NonFiniteError for on_nonfinite="raise"."""
        bad = self._incidents.bad_steps > bad_steps_before
        self.stop_requested = bad and self.options.on_nonfinite == "stop"
        if self.trying is not None:
            self._follow(self.trying)
        if bad and self.options.on_nonfinite == "raise":
            self.close()
            assert self._incidents.newest is not None
            raise NonFiniteError(
                console.with_next_step(self._incidents.newest, self._path), asdict(self._incidents.newest)
            )

    def _follow(self, trying: Trying) -> None:
        """End training when a trial is over. Raises TrialEnded where nobody asks `stop_requested`."""
        newest = self._incidents.newest
        bad = None if newest is None else (newest.first_step, console.sentence(newest))
        over = trying.after_step(self._rows.next_step - self.first_step, bad)
        if trying.news:
            self.note("trial", trying.news)
            trying.news = ""
        self.stop_requested |= over
        if over and not self._stops:
            self.close()
            raise TrialEnded

    def _tell(self, change: Change) -> None:
        if change.urgent:
            self._rows.flush()
        self._writer.event(change.incident, durable=change.urgent)
        if change.opened:
            steps = self._steps_to_replay(change.incident)
            if steps:
                told = console.pause(change.incident, steps, self.options.trial_seconds)
                print(f"tb_nanwatch: {told}", flush=True)  # noqa: T201
            better = self._investigate(change.incident)
            if better is not None:
                self._writer.event(better, durable=True)
            said = console.with_next_step(better or change.incident, self._path)
            print(f"tb_nanwatch: {said}", flush=True)  # noqa: T201

    # ------------------------------------------------------------ beginnings and ends

    def _header(self, entry_point: str) -> RunHeader:
        return RunHeader(
            writer_id=secrets.token_hex(4),
            attempt=self._past.attempts,
            first_step=self.first_step,
            wall_time=time.time(),
            host=socket.gethostname(),
            pid=os.getpid(),
            entry_point=entry_point,
            every=self.options.every,
            versions=history.versions(),
            options=self.options.as_text(),
            worker=self._worker or 0,
            error_policy=self.options.on_nonfinite,
        )

    def _say_where_it_starts(self) -> None:
        past = self._past
        if past.live is not None:
            text = f"process {past.live} seems to be writing to this logdir too; this recorder is an attempt of its own"
            self._say("shared_logdir", text)
        elif past.attempts:
            self.note("continued" if past.same_process else "restart", f"recorder {past.attempts + 1} of this run")
        elif self._done > 0:
            self.note("late", f"watching begins behind {self._done:,} steps of the optimizer, which are not recorded")

    def _on_disable(self, reason: str) -> None:
        if self.trying is not None:
            self.trying.failed(reason)
        self._writer.event(Note(self._rows.next_step, "disabled", reason), durable=True)

    def _on_writer_failure(self, error: Exception) -> None:
        self.guard.disable(f"cannot write to the logdir: {error}")


def say_superseded(earlier: str | os.PathLike[str], later: str | os.PathLike[str]) -> None:
    """Tell that of two watchers of one model only the later one goes on."""
    print(  # noqa: T201  # users without logging shall see it
        f"tb_nanwatch: the model that {os.fspath(earlier)!r} records is watched for {os.fspath(later)!r} now: "
        "a model has one watcher, and the recording of the former ends",
        flush=True,
    )
