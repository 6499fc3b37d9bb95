"""The files of a run: segments of bounded size, old ones thinned when the run's disk budget is spent.

A record reaches the operating system before `append` returns, so a killed process loses nothing of it. Thinning
rewrites the oldest segments beside the old file and renames over it: a reader sees either the one or the other.
Steps close before an incident and every record that is not a block of numbers are never thinned. Of rows that are not
finite the first of each stretch stays, so that a NaN that flashes by once is still there when its neighbours are gone.
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
from numpy.typing import NDArray

from tb_nanwatch.errors import CorruptData
from tb_nanwatch.format import codec, framing, magnitude, metadata
from tb_nanwatch.format.records import FullBlock, Incident, Record, RunHeader, StepBlock, TensorInfo

PROTECTED_STEPS: Final = 256  # kept whole before every incident
PROTECTED_INCIDENTS: Final = 100  # that many incidents; a budget that must hold cannot protect any number
SEGMENTS: Final = 16  # the budget is spent in about this many files
THINNING: Final = 4  # each pass keeps every fourth step of what the pass before kept
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
        self._passes: dict[Path, int] = {}  # how often a closed segment was thinned
        self._paths: list[Path] = []
        self._file: int | None = None
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
            self._protected[record.id] = (record.first_step - PROTECTED_STEPS, record.first_step + PROTECTED_STEPS)
        elif isinstance(record, StepBlock):
            self._newest = max(self._newest, int(record.steps[-1]))
        data = metadata.wrap(record, step, time.time())
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
        framed = memoryview(framing.frame(data))
        while framed:
            written = os.write(self._file, framed)
            self._size += written
            framed = framed[written:]

    def _roll(self, room: int) -> None:
        self.close()
        self._passes[self.path] = 0
        self._number += 1
        self._open()
        self._keep_budget(max(self._segment_bytes, self._opening + room))

    # ------------------------------------------------------------ thinning

    def _keep_budget(self, room: int) -> None:
        """Thin closed segments until `room` bytes are left for the current one, and as much as thinning one takes."""
        sizes = {path: path.stat().st_size for path in self._paths[:-1] if path.exists()}
        while sum(sizes.values()) + max(sizes.values(), default=0) + room > self._disk_bytes:
            closed = [p for p in sizes if self._passes[p] < MAX_PASSES]
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
                    thinner = self._thinner(record, self._passes[path] == MAX_PASSES)
                    if thinner is not None:
                        out.write(framing.frame(metadata.wrap(thinner, step, wall_time)))
                os.fsync(out.fileno())  # or a power failure leaves the new name without its data
            beside.replace(path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()

    def _thinner(self, record: Record, last_pass: bool) -> Record | None:
        if isinstance(record, StepBlock):
            stride = record.stride * THINNING
            keep = self._is_protected(record.steps)
            if not last_pass:
                keep |= (record.steps % stride == 0) | self._turns(record)
            if not keep.any():
                return None
            columns = {n: getattr(record, n)[keep] for n in ("steps", "wall_times", "iterations", "norms", "scalars")}
            return replace(record, **columns, stride=stride)
        if isinstance(record, FullBlock):
            keep = self._is_protected(record.steps)
            keep[::THINNING] |= not last_pass
            if not keep.any():
                return None
            names = ("steps", "max_abs", "mean", "zero_share", "subnormal_share")
            return replace(record, **{n: getattr(record, n)[keep] for n in names})
        return record

    def _turns(self, block: StepBlock) -> NDArray[np.bool_]:
        """Rows that are not finite in another way than the row before them."""
        losses = [info.id for info in self._tensors if info.kind == "loss"]  # a NaN elsewhere may be a gap
        values = block.scalars[:, np.isin(block.scalar_ids, losses)]
        bad = np.hstack([magnitude.to_bits(block.norms), ~np.isfinite(values)])
        turns: NDArray[np.bool_] = bad.any(axis=1)
        turns[1:] &= (bad[1:] != bad[:-1]).any(axis=1)
        return turns

    def _is_protected(self, steps: NDArray[np.int64]) -> NDArray[np.bool_]:
        keep = steps > self._newest - PROTECTED_STEPS
        for first, last in self._protected.values():
            keep |= (steps >= first) & (steps < last)
        return keep


def read_records(path: Path) -> Iterator[tuple[int, float, Record]]:
    """(step, wall time, record) of a segment that this package has written. Damaged records are left out."""
    data = path.read_bytes()
    at = 0
    while at + framing.HEADER_BYTES <= len(data):
        length = framing.header_length(data[at : at + framing.HEADER_BYTES])
        if length is None:
            return
        body = data[at + framing.HEADER_BYTES : at + framing.HEADER_BYTES + length]
        at += framing.HEADER_BYTES + length + framing.FOOTER_BYTES
        if framing.masked_crc(body) != int.from_bytes(data[at - framing.FOOTER_BYTES : at], "little"):
            continue
        event = metadata.parse(body)
        for payload in metadata.unwrap(event):
            with contextlib.suppress(CorruptData):
                record = codec.decode(payload, unpack_steps=True)
                if record is not None:
                    yield event.step, event.wall_time, record  # type: ignore[misc]  # never a BlockSummary here


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in name)[:64] or "host"
