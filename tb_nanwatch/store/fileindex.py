"""Follows one event file and keeps its part up to date. Only the thread that refreshes works here."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.errors import CorruptData
from tb_nanwatch.format import codec
from tb_nanwatch.format.records import (
    BlockSummary,
    Closed,
    CountsRow,
    FirstBatches,
    FullSummary,
    Incident,
    Note,
    RunHeader,
    StepBlock,
    TensorInfo,
)
from tb_nanwatch.read.discovery import readable
from tb_nanwatch.read.recordfile import Located, RecordFile, Vanished
from tb_nanwatch.store.columns import NONFINITE
from tb_nanwatch.store.parts import (
    MAX_STEP,
    SLOT_LEVEL,
    Block,
    Columns,
    CountsAt,
    FilePart,
    Full,
    Place,
    Slot,
)

SCALARS_KEPT: Final = 64  # more scalar columns than this stay on disk
MAX_NOTES: Final = 10_000
_uids = itertools.count()


@dataclass
class FileIndex:
    """Follows one file. Only the thread that refreshes touches it; others see `part`."""

    file: RecordFile
    uid: int = field(default_factory=lambda: next(_uids))
    part: FilePart | None = None
    _header: RunHeader | None = None
    _infos: dict[int, TensorInfo] = field(default_factory=dict)
    _row_of: dict[int, int] = field(default_factory=dict)
    _columns: dict[bytes, Columns] = field(default_factory=dict)
    _slots: dict[int, Slot] = field(default_factory=dict)
    _fulls: list[Full] = field(default_factory=list)
    _counts: list[CountsAt] = field(default_factory=list)
    _incidents: dict[int, Incident] = field(default_factory=dict)
    _notes: list[Note] = field(default_factory=list)
    _closed: Closed | None = None
    _batches: FirstBatches | None = None
    _updated: float = 0.0
    _skipped: list[str] = field(default_factory=list)

    def refresh(self, status: os.stat_result) -> bool:
        """Index what is new; True if the part changed. Raises OSError if the file is gone."""
        for located in self.file.new_records(status):
            try:
                self._add(located)
            except (CorruptData, Vanished) as error:
                self._skipped.append(
                    f"{readable(self.file.path.name)}: skipped {located.size} bytes at offset {located.offset}: {error}"
                )
        if self.file.foreign or not self.file.ours:
            return False
        damage = (*self.file.damage, *self._skipped)
        stamp = f"{self.file.path.name} {status.st_ino} {self.file.offset} {len(damage)} {damage[-1:]}"
        if self.part is not None and self.part.stamp == stamp:
            return False
        self.part = FilePart(
            uid=self.uid,
            path=self.file.path,
            header=self._header or _header_from_name(self.file.path, status),
            header_lost=self._header is None,
            infos=tuple(self._infos.values()),
            row_of=dict(self._row_of),
            slots=tuple(self._slots[n] for n in sorted(self._slots)),
            fulls=tuple(self._fulls),
            counts=tuple(self._counts),
            incidents=tuple(self._incidents.values()),
            notes=tuple(self._notes),
            closed=self._closed,
            batches=self._batches,
            damage=damage,
            updated=self._updated,
            stamp=stamp,
        )
        return True

    def _add(self, located: Located) -> None:
        record = located.record
        self._updated = max(self._updated, located.wall_time)
        place = Place(self.uid, self.file.path, located.offset, located.size)
        if isinstance(record, RunHeader):
            self._header = self._header or record
        elif isinstance(record, tuple):
            self._infos.update((info.id, info) for info in record)
        elif isinstance(record, BlockSummary):
            self._add_block(place, record)
        elif isinstance(record, FullSummary):
            _check_steps(record.steps)
            self._fulls.append(Full(place, record.steps, self._intern(record.ids)))
        elif isinstance(record, CountsRow):
            bad = {i: c for i, c in record.counts.items() if c.bad}
            bits = [(c.nan > 0) | (c.pos_inf > 0) << 1 | (c.neg_inf > 0) << 2 for c in bad.values()]
            self._counts.append(
                CountsAt(place, record.step, np.fromiter(bad, np.int64, len(bad)), np.array(bits, np.uint8))
            )
        elif isinstance(record, Incident):
            self._incidents[record.id] = record
        elif isinstance(record, Note):
            if len(self._notes) < MAX_NOTES:
                self._notes.append(record)
        elif isinstance(record, Closed):
            self._closed = record
        elif isinstance(record, FirstBatches):
            self._batches = record

    def _intern(self, ids: NDArray[np.int64]) -> Columns:
        key = ids.tobytes()
        if key not in self._columns:
            if len(np.unique(ids)) != len(ids):
                raise CorruptData("a block names a tensor twice")
            rows = [self._row_of.setdefault(int(i), len(self._row_of)) for i in ids]
            self._columns[key] = Columns(ids, np.array(rows, np.int64))
        return self._columns[key]

    def _add_block(self, place: Place, summary: BlockSummary) -> None:
        _check_steps(summary.steps)
        block = Block(
            place=place,
            steps=summary.steps,
            wall_times=summary.wall_times,
            iterations=summary.iterations,
            norms=self._intern(summary.norm_ids),
            scalar_ids=tuple(summary.scalar_ids.tolist()),
            scalars=summary.scalars if len(summary.scalar_ids) <= SCALARS_KEPT else None,
        )
        self._updated = max(self._updated, float(np.nan_to_num(summary.wall_times).max()))
        first, last = int(block.steps[0]) >> SLOT_LEVEL, int(block.steps[-1]) >> SLOT_LEVEL
        if first == last:
            self._merge(first, block, summary.low, summary.high, summary.state)
            return
        unpacked = block.load()  # no recorder of ours cuts blocks so, but the format does not forbid it
        numbers = block.steps >> SLOT_LEVEL
        for number in np.unique(numbers):
            mine = numbers == number
            fields = {n: getattr(unpacked, n)[mine] for n in ("steps", "wall_times", "iterations", "norms", "scalars")}
            self._merge(int(number), block, *codec.summarize(StepBlock(**{**vars(unpacked), **fields})))

    def _merge(
        self, number: int, block: Block, low: NDArray[np.uint16], high: NDArray[np.uint16], state: NDArray[np.uint8]
    ) -> None:
        lows, highs = np.zeros(len(self._row_of), np.uint16), np.zeros(len(self._row_of), np.uint16)
        states = np.zeros(len(self._row_of), np.uint8)
        old = self._slots.get(number)
        blocks: tuple[Block, ...] = ()
        if old is not None:
            blocks, width = old.blocks, len(old.low)
            lows[:width], highs[:width], states[:width] = old.low, old.high, old.state
        rows = block.norms.rows
        both = (lows[rows] > 0) & (low > 0)
        lows[rows] = np.where(both, np.minimum(lows[rows], low), np.maximum(lows[rows], low))
        highs[rows] = np.maximum(highs[rows], high)
        states[rows] |= state & np.uint8(NONFINITE)
        blocks = tuple(sorted((*blocks, block), key=lambda b: int(b.steps[0])))
        start, stop = np.searchsorted(block.steps, [number << SLOT_LEVEL, (number + 1) << SLOT_LEVEL])
        first, last = int(block.steps[start]), int(block.steps[stop - 1])
        if old is not None:
            first, last = min(first, old.first), max(last, old.last)
        self._slots[number] = Slot(number, first, last, blocks, lows, highs, states)


def _check_steps(steps: NDArray[np.int64]) -> None:
    if not len(steps) or steps[0] < 0 or steps[-1] >= MAX_STEP or (np.diff(steps) <= 0).any():
        raise CorruptData("a block whose steps do not count up")


def _header_from_name(path: Path, status: os.stat_result) -> RunHeader:
    """A header for a file whose own was damaged: names end in ".<writer>.<segment>.nanwatch"."""
    parts = path.name.split(".")
    named = len(parts) > 3 and parts[-2].isdecimal()
    return RunHeader(
        writer_id=parts[-3] if named else path.name, segment=int(parts[-2]) if named else 0, wall_time=status.st_mtime
    )
