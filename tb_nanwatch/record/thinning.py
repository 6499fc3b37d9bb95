"""Rewriting a segment with fewer steps: what may go, and what must stay.

Every pass keeps each fourth step of what the pass before kept. Steps close before an incident and every record that is
not a block of numbers always stay. Of rows that are not finite the first of each stretch stays, so that a
NaN that flashes by once is still there when its neighbours are gone. The last pass keeps nothing but what must stay.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from tb_nanwatch.errors import CorruptData
from tb_nanwatch.format import codec, framing, magnitude, metadata
from tb_nanwatch.format.records import FullBlock, Incident, Record, StepBlock

PROTECTED_STEPS: Final = 256  # kept whole before every incident
THINNING: Final = 4
# Every reader takes a name with "tfevents" in it for an event file: half a file must not have one.
UNFINISHED: Final = ".nanwatch-thinning-"


def protected_by(incident: Incident) -> tuple[int, int]:
    """The steps around the beginning of an incident that must stay: first, and the one behind the last."""
    return incident.first_step - PROTECTED_STEPS, incident.first_step + PROTECTED_STEPS


@dataclass(frozen=True)
class Thinner:
    """What a pass keeps. `protected`: half-open ranges of steps; `newest`: an incident may yet begin behind it."""

    protected: Sequence[tuple[int, int]]
    newest: int | None = None
    last_pass: bool = False

    def rewrite(self, path: Path, beside: Path) -> None:
        """Replace a closed segment by a thinner one. Raises OSError; then the old one stays."""
        losses: set[int] = set()
        try:
            with beside.open("wb") as out:
                out.write(framing.frame(metadata.version_event(time.time())))
                for step, wall_time, record in read_records(path):
                    if isinstance(record, tuple):
                        losses.update(info.id for info in record if info.kind == "loss")
                    thinner = self._thinner(record, losses)
                    if thinner is not None:
                        out.write(framing.frame(metadata.wrap(thinner, step, wall_time)))
                out.flush()
                os.fsync(out.fileno())  # or a power failure leaves the new name without its data
            beside.replace(path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()

    def _thinner(self, record: Record, losses: set[int]) -> Record | None:
        if isinstance(record, StepBlock):
            stride = record.stride * THINNING
            keep = self._must_stay(record.steps)
            if not self.last_pass:
                keep |= (record.steps % stride == 0) | _turns(record, losses)
            if not keep.any():
                return None
            columns = {n: getattr(record, n)[keep] for n in ("steps", "wall_times", "iterations", "norms", "scalars")}
            return replace(record, **columns, stride=stride)
        if isinstance(record, FullBlock):
            keep = self._must_stay(record.steps)
            keep[::THINNING] |= not self.last_pass
            if not keep.any():
                return None
            names = ("steps", "max_abs", "mean", "zero_share", "subnormal_share")
            return replace(record, **{n: getattr(record, n)[keep] for n in names})
        return record

    def _must_stay(self, steps: NDArray[np.int64]) -> NDArray[np.bool_]:
        keep = np.zeros(len(steps), np.bool_)
        if self.newest is not None:
            keep |= steps > self.newest - PROTECTED_STEPS
        for first, stop in self.protected:
            keep |= (steps >= first) & (steps < stop)
        return keep


def _turns(block: StepBlock, losses: set[int]) -> NDArray[np.bool_]:
    """Rows that are not finite in another way than the row before them."""
    values = block.scalars[:, [int(i) in losses for i in block.scalar_ids]]  # a NaN elsewhere may be a gap
    bad = np.hstack([magnitude.to_bits(block.norms), ~np.isfinite(values)])
    turns = np.asarray(bad.any(axis=1))
    turns[1:] &= (bad[1:] != bad[:-1]).any(axis=1)
    return turns


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
        with contextlib.suppress(CorruptData, DecodeError):
            event = metadata.parse(body)
            for payload in metadata.unwrap(event):
                record = codec.decode(payload, unpack_steps=True)
                if record is not None:
                    yield event.step, event.wall_time, record  # type: ignore[misc]  # never a summary here
