"""The files of a run: segments of bounded size, old ones thinned when the run's disk budget is spent.

A record reaches the operating system before `append` returns, so a killed process loses nothing of it. Thinning
rewrites the oldest segments beside the old file and renames over it: a reader sees either the one or the other.
Steps close before an incident, non-finite rows and every record that is not a block of numbers are never thinned.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from tb_nanwatch.errors import CorruptData
from tb_nanwatch.format import codec, framing, magnitude, metadata
from tb_nanwatch.format.records import FullBlock, Incident, Record, RunHeader, StepBlock, TensorInfo

PROTECTED_STEPS: Final = 256  # kept whole before every incident
SEGMENTS: Final = 16  # the budget is spent in about this many files
THINNING: Final = 4  # each pass keeps every fourth step of what the pass before kept


class Segments:
    """Appends records to the current segment file of one recorder."""

    def __init__(self, logdir: Path, header: RunHeader, disk_bytes: int) -> None:
        self._logdir = logdir
        self._header = header
        self._disk_bytes = disk_bytes
        self._segment_bytes = max(disk_bytes // SEGMENTS, 1 << 16)
        self._tensors: list[TensorInfo] = []
        self._protected: list[tuple[int, int]] = []  # step ranges
        self._passes: dict[Path, int] = {}  # how often a closed segment was thinned
        self._paths: list[Path] = []
        self._file: int | None = None
        self._size = 0
        self._number = 0
        logdir.mkdir(parents=True, exist_ok=True)
        self._open()

    @property
    def path(self) -> Path:
        return self._paths[-1]

    def append(self, record: Record, step: int) -> None:
        """Write one record; it is with the operating system when this returns."""
        if isinstance(record, tuple):
            self._tensors += record
        if isinstance(record, Incident):
            end = record.last_step if record.last_step is not None else record.first_step
            self._protected.append((record.first_step - PROTECTED_STEPS, end + 1))
        if self._size > self._segment_bytes:
            self._roll()
        self._write(metadata.wrap(record, step, time.time()))

    def close(self) -> None:
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
        self._paths.append(path)
        self._size = 0
        now = time.time()
        self._write(metadata.version_event(now))
        self._write(metadata.wrap(replace(self._header, segment=self._number), self._header.first_step, now))
        if self._tensors:
            self._write(metadata.wrap(tuple(self._tensors), self._header.first_step, now))

    def _write(self, data: bytes) -> None:
        if self._file is None:
            raise OSError("the segment file is closed")
        framed = memoryview(framing.frame(data))
        while framed:
            written = os.write(self._file, framed)
            self._size += written
            framed = framed[written:]

    def _roll(self) -> None:
        self.close()
        self._passes[self.path] = 0
        self._number += 1
        self._open()
        self._keep_budget()

    # ------------------------------------------------------------ thinning

    def _keep_budget(self) -> None:
        sizes = {path: path.stat().st_size for path in self._paths if path.exists()}
        while sum(sizes.values()) + self._segment_bytes > self._disk_bytes:
            closed = [p for p in self._paths[:-1] if p in sizes and self._passes[p] < 12]
            if not closed:
                return
            # The segment thinned least often goes first, the oldest among equals: old history fades evenly.
            victim = min(closed, key=lambda p: (self._passes[p] - 2 * (sizes[p] > self._segment_bytes // 2), p.name))
            self._passes[victim] += 1
            self._thin(victim)
            sizes[victim] = victim.stat().st_size

    def _thin(self, path: Path) -> None:
        # Every reader takes a name with "tfevents" in it for an event file: half a file must not have one.
        beside = path.with_name(f".nanwatch-thinning-{self._header.writer_id}")
        try:
            with beside.open("wb") as out:
                out.write(framing.frame(metadata.version_event(time.time())))
                for step, wall_time, record in read_records(path):
                    thinner = self._thinner(record)
                    if thinner is not None:
                        out.write(framing.frame(metadata.wrap(thinner, step, wall_time)))
            os.replace(beside, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()

    def _thinner(self, record: Record) -> Record | None:
        if isinstance(record, StepBlock):
            stride = record.stride * THINNING
            keep = (record.steps % stride == 0) | self._is_protected(record.steps)
            keep |= magnitude.to_bits(record.norms).any(axis=1)
            if not keep.any():
                return None
            columns = {n: getattr(record, n)[keep] for n in ("steps", "wall_times", "iterations", "norms", "scalars")}
            return replace(record, **columns, stride=stride)
        if isinstance(record, FullBlock):
            keep = self._is_protected(record.steps)
            keep[::THINNING] = True
            names = ("steps", "max_abs", "mean", "zero_share", "subnormal_share")
            return replace(record, **{n: getattr(record, n)[keep] for n in names})
        return record

    def _is_protected(self, steps: np.ndarray) -> np.ndarray:
        keep = np.zeros(len(steps), bool)
        for first, last in self._protected:
            keep |= (steps >= first) & (steps < last)
        return keep


def read_records(path: Path) -> Iterator[tuple[int, float, Record]]:
    """(step, wall time, record) of a segment that this package has written and closed; stops at damage."""
    data = path.read_bytes()
    at = 0
    while at + framing.HEADER_BYTES <= len(data):
        length = framing.header_length(data[at : at + framing.HEADER_BYTES])
        if length is None:
            return
        at += framing.HEADER_BYTES
        event = metadata.parse(data[at : at + length])
        at += length + framing.FOOTER_BYTES
        for payload in metadata.unwrap(event):
            with contextlib.suppress(CorruptData):
                record = codec.decode(payload, unpack_steps=True)
                if record is not None:
                    yield event.step, event.wall_time, record  # type: ignore[misc]  # never a BlockSummary here


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in name)[:64] or "host"
