"""One run of the user's program, in a process group of its own, and what its recorder tells meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tb_nanwatch.errors import UsageError
from tb_nanwatch.format import treatment
from tb_nanwatch.format.telling import Listener
from tb_nanwatch.format.treatment import Treatment

LINGER: Final = 60.0  # seconds that a program may go on for when its trial is over: evaluation, its last lines
PATIENCE: Final = 10.0  # seconds between asking it to end and asking harder


class Program:
    """`command` with the remedy of `asked` in its environment. `folder` takes its output and what it tells.

    After the end: exit_code (negative: the signal), None before. folders: of its runs. step: of the newest notice.
    """

    def __init__(self, command: Sequence[str], asked: Treatment, folder: Path) -> None:
        report = folder / f"{asked.label}.jsonl"
        report.touch()
        self.asked = replace(asked, report=str(report))
        self.output = folder / f"{asked.label}.txt"
        self.folders: list[Path] = []
        self.step = 0
        self.words = ""
        self.nonfinite: tuple[int, str] | None = None
        self.done = False
        self.not_applicable = self.failed = ""
        self.exit_code: int | None = None
        self.stopped = False  # by us
        self._command = list(command)
        self._listener = Listener(report)
        self._process: subprocess.Popen[bytes] | None = None
        self._over_since = 0.0
        self._sent: set[int] = set()

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self.exit_code is None

    @property
    def over(self) -> bool:
        """Whether its trial has come to an end, or cannot come to one any more."""
        return bool(self.done or self.nonfinite or self.not_applicable or self.failed)

    def start(self) -> None:
        """Raises UsageError where there is no such program."""
        environment = os.environ | {treatment.VARIABLE: self.asked.as_json()}
        environment.setdefault("PYTHONUNBUFFERED", "1")
        environment.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # the first would take all memory of a GPU
        try:
            with self.output.open("wb") as out:
                self._process = subprocess.Popen(  # noqa: S603  # it is the user's own
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    start_new_session=True,  # a Ctrl-C at the terminal is for us; we hand it on
                )
        except OSError as error:
            raise UsageError(f"cannot run {self._command[0]!r}: {error.strerror or error}") from error

    def look(self) -> None:
        """Take in what is new; end what lingers."""
        for event in self._listener.new():
            self._hear(event)
        if self.running and self.over:
            self._over_since = self._over_since or time.monotonic()
            late = time.monotonic() - self._over_since - (0.0 if self.failed else LINGER)
            if late >= 0:
                self._urge(late)
        self._reap()

    def signal(self, number: int) -> None:
        """Send a signal to the process and all that it started."""
        if self.running and self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _urge(self, late: float) -> None:
        """Ask for the end, once with each signal. late: seconds since the first was due."""
        self.stopped = True
        number = signal.SIGINT if late < PATIENCE else signal.SIGTERM if late < 2 * PATIENCE else signal.SIGKILL
        if number not in self._sent:
            self._sent.add(number)
            self.signal(number)

    def tail(self, lines: int = 6) -> list[str]:
        """The last lines of its output that are not blank."""
        try:
            with self.output.open("rb") as file:
                file.seek(max(0, self.output.stat().st_size - (1 << 14)))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return []
        return [line for line in text.splitlines() if line.strip()][-lines:]

    def _hear(self, event: dict[str, object]) -> None:
        kind = event["event"]
        if kind == "started":
            self.folders.append(Path(str(event["folder"])))
        elif kind == "applied":
            self.words = str(event["words"])
        elif kind == "step":
            self.step = int(str(event["step"]))
        elif kind == "nonfinite" and self.nonfinite is None:
            self.nonfinite = (int(str(event["step"])), str(event["what"]))
            self.step = self.nonfinite[0] + 1
        elif kind == "done":
            self.done, self.step = True, int(str(event["steps"]))
        elif kind == "not_applicable":
            self.not_applicable = str(event["why"])
        elif kind == "failed":
            self.failed = str(event["why"])

    def _reap(self) -> None:
        """Notice the end. What the program left behind is ended before its number can become somebody else's."""
        process = self._process
        if process is None or self.exit_code is not None:
            return
        if hasattr(os, "waitid"):
            if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
                return
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL if self.stopped else signal.SIGTERM)
        code = process.poll()
        if code is not None:
            for event in self._listener.new():
                self._hear(event)
            self.exit_code = code
