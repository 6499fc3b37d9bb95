"""Files that other recorders left in the run's folder: they count towards its disk budget, and fade with the rest.

Only a file that nobody appends to any more may be rewritten: a recorder's older segments, and the last one if it
ends in a goodbye or its process is gone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

from tb_nanwatch.format import metadata
from tb_nanwatch.format.records import Closed, Incident, RunHeader
from tb_nanwatch.record.thinning import UNFINISHED, protected_by, read_records

ABANDONED: Final = 3600.0  # seconds; nothing that is being written takes so long


class EarlierFiles:
    """Event files in `logdir` that are not of the recorder `writer_id`; read once, when they are asked about."""

    def __init__(self, logdir: Path, writer_id: str) -> None:
        self._logdir = logdir
        self._writer_id = writer_id
        self._known: dict[Path, tuple[bool, list[tuple[int, int]]]] = {}  # may be rewritten, protected steps

    def sizes(self) -> dict[Path, int]:
        """Bytes of each file, as they are now."""
        found = {}
        for path in sorted(self._logdir.glob(f"*tfevents*{metadata.FILE_SUFFIX}")):
            try:
                if f".{self._writer_id}." not in path.name:
                    found[path] = path.stat().st_size
            except FileNotFoundError:
                continue
        return found

    def sweep(self) -> None:
        """Remove what a recorder that was killed had begun beside the files and never renamed."""
        for path in [*self._logdir.glob(f"{UNFINISHED}*"), *(self._logdir / metadata.CAPSULE_FOLDER).glob(".step_*")]:
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > ABANDONED:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    def may_be_rewritten(self, path: Path) -> bool:
        """True if nobody appends to the file any more."""
        return self._about(path)[0]

    def protected(self, path: Path) -> list[tuple[int, int]]:
        """Steps of the file's recorder that thinning must leave."""
        return self._about(path)[1]

    def _about(self, path: Path) -> tuple[bool, list[tuple[int, int]]]:
        if path not in self._known:
            self._known |= self._read(path)
        return self._known[path]

    def _read(self, path: Path) -> dict[Path, tuple[bool, list[tuple[int, int]]]]:
        """All files of the recorder that wrote `path`: its incidents are in any of them."""
        stem = _without_segment(path)
        segments = sorted(p for p in self.sizes() if _without_segment(p) == stem)
        over: dict[Path, bool] = defaultdict(bool)
        protected: dict[int, tuple[int, int]] = {}
        for segment in segments:
            over[segment] = segment != segments[-1]
            try:
                for _, _, record in read_records(segment):
                    if isinstance(record, RunHeader):
                        over[segment] |= record.host == socket.gethostname() and not _alive(record.pid)
                    elif isinstance(record, Closed):
                        over[segment] = True
                    elif isinstance(record, Incident):
                        protected[record.id] = protected_by(record)
            except OSError:
                over[segment] = False
        return {segment: (over[segment], list(protected.values())) for segment in segments}


def _without_segment(path: Path) -> str:
    return ".".join(path.name.split(".")[:-2])


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
