"""The files of a run: segments of bounded size, old ones thinned when the run's disk budget is spent.

A record reaches the operating system before `append` returns, so a killed process loses nothing of it. Thinning
rewrites the oldest segments beside the old file and renames over it: a reader sees either the one or the other.
The budget is the run's: what earlier recorders left in its folder counts, and is thinned as well.
"""

from __future__ import annotations

import os
import socket
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Final

from tb_nanwatch.format import framing, metadata
from tb_nanwatch.format.records import Incident, Record, RunHeader, StepBlock, TensorInfo
from tb_nanwatch.record.earlier import EarlierFiles
from tb_nanwatch.record.thinning import UNFINISHED, Thinner, protected_by

PROTECTED_INCIDENTS: Final = 100  # that many incidents; a budget that must hold cannot protect any number
SEGMENTS: Final = 16  # the budget is spent in about this many files
MAX_PASSES: Final = 12


class Segments:
    """Appends records to the current segment file of one recorder."""

    def __init__(self, logdir: Path, header: RunHeader, disk_bytes: int) -> None:
        self._logdir = logdir
        self._header = header
        self._disk_bytes = disk_bytes
        self._segment_bytes = max(disk_bytes // SEGMENTS, 1 << 16)
        self._tensors: list[TensorInfo] = []
        self._protected: dict[int, tuple[int, int]] = {}  # incident to step range
        self._newest = 0  # step: what comes next may be the incident that protects the steps before it
        self._passes: dict[Path, int] = defaultdict(int)  # how often a closed file was thinned
        self._earlier = EarlierFiles(logdir, header.writer_id)
        self._begun = False
        self._paths: list[Path] = []
        self._file: int | None = None
        self._has_links = False
        self._size = 0
        self._opening = 0  # bytes of header and tables that every segment begins with
        self._number = 0
        logdir.mkdir(parents=True, exist_ok=True)
        self._open()

    @property
    def path(self) -> Path:
        """The file that is appended to."""
        return self._paths[-1]

    def append(self, record: Record, step: int) -> None:
        """Write one record; it is with the operating system when this returns."""
        if isinstance(record, tuple):
            self._tensors += record
        elif isinstance(record, Incident) and len(self._protected) < PROTECTED_INCIDENTS:
            self._protected[record.id] = protected_by(record)
        elif isinstance(record, StepBlock):
            self._newest = max(self._newest, int(record.steps[-1]))
        data = metadata.wrap(record, step, time.time())
        if not self._begun:  # not when constructed: the training thread waits for that
            self._begun = True
            self._earlier.sweep()
            self._keep_budget(max(self._segment_bytes, self._opening + len(data)))
        if isinstance(record, Incident) and record.capsule:  # it may just have taken its share of the disk
            self._keep_budget(max(self._segment_bytes, self._opening + len(data)))
        if self._size + len(data) > self._segment_bytes and self._size > self._opening:
            self._roll(len(data))
        self._write(data)

    def close(self) -> None:
        """Append no more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    # ------------------------------------------------------------ files

    def _open(self) -> None:
        # The time leads so that names sort by age; the zero-padded segment number keeps a recorder's files in order.
        name = (
            f"events.out.tfevents.{int(self._header.wall_time):010d}.{_safe(socket.gethostname())}"
            f".{self._header.pid}.{self._header.writer_id}.{self._number:05d}{metadata.FILE_SUFFIX}"
        )
        path = self._logdir / name
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o644)
        self._has_links = os.fstat(self._file).st_nlink > 0  # some network file systems count none
        self._paths.append(path)
        self._size = 0
        now = time.time()
        self._write(metadata.version_event(now))
        self._write(metadata.wrap(replace(self._header, segment=self._number), self._header.first_step, now))
        if self._tensors:
            self._write(metadata.wrap(tuple(self._tensors), self._header.first_step, now))
        self._opening = self._size

    def _write(self, data: bytes) -> None:
        if self._file is None:
            raise OSError("the segment file is closed")
        if self._has_links and os.fstat(self._file).st_nlink == 0:
            raise FileNotFoundError(f"{self.path} was removed while it was written")
        framed = memoryview(framing.frame(data))
        while framed:
            written = os.write(self._file, framed)
            self._size += written
            framed = framed[written:]

    def _roll(self, room: int) -> None:
        self.close()
        self._number += 1
        self._open()
        self._keep_budget(max(self._segment_bytes, self._opening + room))

    # ------------------------------------------------------------ thinning

    def _keep_budget(self, room: int) -> None:
        """Thin closed files until `room` bytes are left for the current one, and as much as thinning one takes."""
        sizes = {path: path.stat().st_size for path in self._paths[:-1] if path.exists()} | self._earlier.sizes()
        room += metadata.capsule_bytes(self._logdir)
        while sum(sizes.values()) + max(sizes.values(), default=0) + room > self._disk_bytes:
            closed = [p for p in sizes if self._passes[p] < MAX_PASSES and self._may_thin(p)]
            if not closed:
                return
            # The segment thinned least often goes first, the oldest among equals: old history fades evenly.
            victim = min(closed, key=lambda p: (self._passes[p] - 2 * (sizes[p] > self._segment_bytes // 2), p.name))
            self._passes[victim] += 1
            self._thin(victim)
            sizes[victim] = victim.stat().st_size

    def _may_thin(self, path: Path) -> bool:
        return path in self._paths or self._earlier.may_be_rewritten(path)

    def _thin(self, path: Path) -> None:
        last = self._passes[path] == MAX_PASSES
        if path in self._paths:
            thinner = Thinner(list(self._protected.values()), self._newest, last)
        else:
            thinner = Thinner(self._earlier.protected(path), None, last)
        thinner.rewrite(path, path.with_name(f"{UNFINISHED}{self._header.writer_id}"))


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in name)[:64] or "host"
