"""also_scalars: norms and losses as ordinary scalar summaries, for TensorBoard's own Scalars tab.

They go into an event file beside ours. An event per number is what makes such files large, so a number is written every
`every`-th step and while trouble is new, and more rarely when the file has used up most of its share of the disk.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.format import framing, magnitude, metadata
from tb_nanwatch.format.records import SCALAR_KINDS, TensorInfo
from tb_nanwatch.record.blocks import Rows

SUFFIX: Final = ".scalars"  # sorts behind the numbers of our segments: TensorBoard follows the last file of a folder
TROUBLED_STEPS: Final = 16  # in a row, that are written whole
SHARE: Final = 8  # of the run's disk budget one part in so many


class ScalarFile:
    """Appends scalar summaries to a file beside a recorder's first segment; all such files of its folder together hold
    about `most_bytes` at most. Raises OSError where it cannot.
    """

    def __init__(self, segment: Path, every: int, most_bytes: int) -> None:
        most_bytes -= sum(path.stat().st_size for path in segment.parent.glob(f"*tfevents*{SUFFIX}"))
        self._file = segment.with_name(".".join(segment.name.split(".")[:-2]) + SUFFIX).open("xb")
        self._every = every
        self._room = most_bytes // 2  # bytes until the next time that steps between numbers are doubled
        self._tags: dict[int, tuple[str, str]] = {}  # id to kind, tag
        self._ids = np.zeros(0, np.int64)  # of the columns of the newest rows
        self._due = np.zeros(0, np.int64)  # step from which each of them is written again
        self._troubled = 0
        self._left = most_bytes
        self._append(metadata.version_event(time.time()))

    def declare(self, tensors: Sequence[TensorInfo]) -> None:
        """Learn the names of tensors."""
        for info in tensors:
            name = f"nanwatch/{info.name}" if info.kind in SCALAR_KINDS else f"nanwatch/{info.kind}_norm/{info.name}"
            self._tags[info.id] = info.kind, name

    def add(self, rows: Rows) -> None:
        """Write what is due of some steps."""
        self._follow(np.concatenate([rows.norm_ids, rows.scalar_ids]))
        losses = np.array([self._tags[int(i)][0] == "loss" for i in rows.scalar_ids], bool)
        values = np.concatenate([magnitude.decode(rows.norms), rows.scalars.astype(np.float64)], axis=1)
        measured = np.concatenate([rows.norms != magnitude.NOT_MEASURED, ~np.isnan(rows.scalars) | losses], axis=1)
        bad = np.hstack([magnitude.to_bits(rows.norms) > 0, ~np.isfinite(rows.scalars[:, losses])])
        trouble = np.asarray(bad.any(axis=1))
        for number, step in enumerate(rows.steps):
            self._troubled = self._troubled + 1 if trouble[number] else 0
            wanted = measured[number] & ((self._due <= step) | (0 < self._troubled <= TROUBLED_STEPS))
            if wanted.any() and self._left > 0:
                self._write(int(step), float(rows.wall_times[number]), np.flatnonzero(wanted), values[number])
                self._due[wanted] = (int(step) // self._every + 1) * self._every

    def flush(self) -> None:
        """Hand what was written to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Append no more."""
        self._file.close()

    def _follow(self, ids: NDArray[np.int64]) -> None:
        """Make room for these columns; those that stay keep their place in time."""
        if np.array_equal(ids, self._ids):
            return
        known = dict(zip(self._ids.tolist(), self._due.tolist(), strict=True))
        self._ids, self._due = ids, np.array([known.get(i, 0) for i in ids.tolist()], np.int64)

    def _write(self, step: int, wall_time: float, columns: Any, values: NDArray[np.float64]) -> None:
        from tensorboard.compat.proto import event_pb2  # loads no TensorFlow

        event = event_pb2.Event(step=step, wall_time=wall_time)
        limit = float(np.finfo(np.float32).max)
        for column in columns:
            value = float(values[column])
            if np.isfinite(value):
                value = min(max(value, -limit), limit)
            event.summary.value.add(tag=self._tags[int(self._ids[column])][1], simple_value=value)
        self._append(event.SerializeToString())

    def _append(self, data: bytes) -> None:
        framed = framing.frame(data)
        self._file.write(framed)
        self._left -= len(framed)
        self._room -= len(framed)
        if self._room <= 0:
            self._every *= 2
            self._room = self._left // 2
