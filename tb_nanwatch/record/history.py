"""What earlier recorders left in a logdir: where the count of steps and attempts goes on."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tb_nanwatch.format import metadata
from tb_nanwatch.format.records import Closed, Incident, Record, RunHeader, StepBlock
from tb_nanwatch.record.thinning import read_records

JOB_STARTS_WITHIN: Final = 600.0  # seconds from the first worker of a job to the last


@dataclass(frozen=True)
class History:
    """attempts: recorders so far; next_step: one after the last; the iterations of its steps, for restarts from a
    checkpoint; next_incident: first free id; live: pid of a process that seems to be writing here now.
    """

    attempts: int = 0
    next_step: int = 0
    steps: Any = None
    iterations: Any = None
    next_incident: int = 0
    live: int | None = None
    same_process: bool = False

    def step_after(self, iterations: int) -> int:
        """Where a recorder begins whose optimizer has done so many iterations: where the run had done as many."""
        if self.steps is None or iterations <= 0:
            return self.next_step
        behind = self.steps[self.iterations == iterations]
        return int(behind[-1]) + 1 if len(behind) else self.next_step


def read(logdir: Path, worker: int | None = None) -> History:
    """History of a logdir, from the newest segments of each recorder. Damaged files count as far as they go.

    With `worker`, this process's index among those that train together, what its fellows have begun to write is no
    history: all of them shall find the same, whoever comes first.
    """
    newest: dict[str, Path] = {}
    for path in sorted(logdir.glob(f"events.out.tfevents.*{metadata.FILE_SUFFIX}")):
        parts = path.name.split(".")
        newest[".".join(parts[:-2])] = path  # all but the segment number: sorted, so the newest stays
    attempts, next_step, next_incident, live, same = 0, 0, 0, None, False
    steps: list[Any] = []
    iterations: list[Any] = []
    for path in newest.values():
        header, closed, last, incident = None, False, -1, -1
        mine: list[StepBlock] = []
        for record in _records(path):
            if isinstance(record, RunHeader):
                header = record
            elif isinstance(record, StepBlock):
                mine.append(record)
                last = int(record.steps[-1])
            elif isinstance(record, Incident):
                incident = max(incident, record.id)
            elif isinstance(record, Closed):
                closed = True
        if header is None or (worker is not None and not closed and _is_fellow(header, worker)):
            continue
        steps += [block.steps for block in mine]
        iterations += [block.iterations for block in mine]
        next_incident = max(next_incident, incident + 1)
        attempts = max(attempts, header.attempt + 1)
        next_step = max(next_step, last + 1)
        if not closed and header.host == socket.gethostname() and header.pid != os.getpid() and _alive(header.pid):
            live = header.pid
        same |= header.pid == os.getpid() and header.host == socket.gethostname()
    return History(
        attempts,
        next_step,
        np.concatenate(steps) if steps else None,
        np.concatenate(iterations) if iterations else None,
        next_incident,
        live,
        same,
    )


def _records(path: Path) -> Iterator[Record]:
    with contextlib.suppress(OSError):  # a folder, a link to nowhere, somebody else's: none of our past
        for _, _, record in read_records(path):
            yield record


def _is_fellow(header: RunHeader, worker: int) -> bool:
    """Whether an open file seems to be another worker's of the job that is starting now."""
    if header.worker == worker:
        return False
    if header.host == socket.gethostname():
        return _alive(header.pid)
    return header.wall_time > time.time() - JOB_STARTS_WITHIN  # a process elsewhere cannot be asked


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def versions() -> dict[str, str]:
    """Versions of what shapes a run's numbers."""
    import platform
    import sys

    from tb_nanwatch.version import __version__

    found = {"tb_nanwatch": __version__, "python": platform.python_version()}
    for name in ("tensorflow", "keras", "tf_keras", "numpy"):
        if name in sys.modules:
            found[name] = str(getattr(sys.modules[name], "__version__", ""))
    return found
