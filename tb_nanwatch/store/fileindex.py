"""What one event file of ours holds, without its bulk: summaries in memory, places on disk for the rest.

Blocks are gathered by slot: slot s holds the steps 256 s to 256 s + 255, as recorders cut them. However small the
blocks are that a slow run leaves, the memory goes with the steps and not with their number.
"""

from __future__ import annotations

import functools
import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.errors import CorruptData
from tb_nanwatch.format import codec
from tb_nanwatch.format.records import (
    BlockSummary,
    Closed,
    CountsRow,
    FullBlock,
    FullSummary,
    Incident,
    Note,
    RunHeader,
    StepBlock,
    TensorInfo,
)
from tb_nanwatch.read.discovery import readable
from tb_nanwatch.read.recordfile import Located, RecordFile, Vanished, load
from tb_nanwatch.store.columns import NONFINITE

SLOT_LEVEL: Final = 8
SLOT_STEPS: Final = 1 << SLOT_LEVEL
MAX_STEP: Final = 1 << 53
SCALARS_KEPT: Final = 64  # more scalar columns than this stay on disk
MAX_NOTES: Final = 10_000
_uids = itertools.count()


@dataclass(frozen=True)
class Place:
    """Where a record lies. `uid` is of the file as it was indexed: a rewritten one gets another."""

    uid: int
    path: Path
    offset: int
    size: int


@dataclass(frozen=True)
class Columns:
    """The tensors of a block. ids int64[m]; rows int64[m] in the file's summaries; position: id to column."""

    ids: NDArray[np.int64]
    rows: NDArray[np.int64]

    @functools.cached_property
    def position(self) -> dict[int, int]:
        """Column of a tensor id."""
        return {int(i): column for column, i in enumerate(self.ids)}

    @functools.cached_property
    def of_row(self) -> NDArray[np.int64]:
        """Column of every row of the file, -1 for rows that the block has not."""
        table = np.full(int(self.rows.max(initial=-1)) + 1, -1, np.int64)
        table[self.rows] = np.arange(len(self.rows))
        return table

    def columns(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Columns of rows of the file, -1 where the block has them not."""
        known = (rows >= 0) & (rows < len(self.of_row))
        return np.where(known, self.of_row[np.where(known, rows, 0)] if len(self.of_row) else -1, -1)


@dataclass(frozen=True)
class Block:
    """A step block on disk. steps, iterations int64[n]; wall_times float64[n]; scalars float32[n, k] if few."""

    place: Place
    steps: NDArray[np.int64]
    wall_times: NDArray[np.float64]
    iterations: NDArray[np.int64]
    norms: Columns
    scalar_ids: tuple[int, ...]
    scalars: NDArray[np.float32] | None

    def load(self) -> StepBlock:
        """The block, unpacked. Raises Vanished."""
        block: StepBlock = _load(self.place, StepBlock)
        if not (np.array_equal(block.steps, self.steps) and np.array_equal(block.norm_ids, self.norms.ids)):
            raise Vanished(f"{self.place.path}: the block at offset {self.place.offset} is another one now")
        return block


@dataclass(frozen=True)
class Full:
    """A block of full statistics on disk. steps int64[n]; ids by `columns`."""

    place: Place
    steps: NDArray[np.int64]
    columns: Columns

    def load(self) -> FullBlock:
        """The block, unpacked. Raises Vanished."""
        block: FullBlock = _load(self.place, FullBlock)
        if not (np.array_equal(block.steps, self.steps) and np.array_equal(block.ids, self.columns.ids)):
            raise Vanished(f"{self.place.path}: the block at offset {self.place.offset} is another one now")
        return block


@dataclass(frozen=True)
class CountsAt:
    """Exact counts on disk; in memory only which tensors were not finite. ids int64[n]; bits uint8[n]."""

    place: Place
    step: int
    ids: NDArray[np.int64]
    bits: NDArray[np.uint8]

    def load(self) -> CountsRow:
        """The row of counts. Raises Vanished."""
        row: CountsRow = _load(self.place, CountsRow)
        return row


@dataclass(frozen=True)
class Slot:
    """The blocks of 256 steps. low, high uint16[rows]; state uint8[rows]; as in BlockSummary, over all blocks."""

    number: int
    first: int
    last: int
    blocks: tuple[Block, ...]
    low: NDArray[np.uint16]
    high: NDArray[np.uint16]
    state: NDArray[np.uint8]

    def span(self, block: Block) -> tuple[int, int]:
        """Rows of a block that belong to this slot: first, and the one behind the last."""
        start, stop = np.searchsorted(block.steps, [self.number << SLOT_LEVEL, (self.number + 1) << SLOT_LEVEL])
        return int(start), int(stop)


@dataclass(frozen=True)
class FilePart:
    """An immutable view of one file's index."""

    uid: int
    path: Path
    header: RunHeader
    header_lost: bool  # then `header` says no more than the file's name does
    infos: tuple[TensorInfo, ...]
    row_of: dict[int, int]
    slots: tuple[Slot, ...]
    fulls: tuple[Full, ...]
    counts: tuple[CountsAt, ...]
    incidents: tuple[Incident, ...]
    notes: tuple[Note, ...]
    closed: Closed | None
    damage: tuple[str, ...]
    updated: float
    stamp: str  # changes whenever the part does

    @functools.cached_property
    def numbers(self) -> NDArray[np.int64]:
        """Numbers of the slots, ascending: int64[slots]."""
        return np.array([s.number for s in self.slots], np.int64)

    @functools.cached_property
    def width(self) -> int:
        """Rows of the summaries: every tensor of any block has one."""
        return max(self.row_of.values(), default=-1) + 1

    @functools.cached_property
    def extents(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First and last step of each slot: int64[slots] twice."""
        return np.array([s.first for s in self.slots], np.int64), np.array([s.last for s in self.slots], np.int64)

    @functools.cached_property
    def clock(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """Steps in ascending order, each once, their wall times and their iterations."""
        blocks = list({id(b): b for s in self.slots for b in s.blocks}.values())
        if not blocks:
            return np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64)
        steps, order = np.unique(np.concatenate([b.steps for b in blocks]), return_index=True)
        walls = np.concatenate([b.wall_times for b in blocks])[order]
        return steps, walls, np.concatenate([b.iterations for b in blocks])[order]

    @functools.cached_property
    def stacked(self) -> tuple[NDArray[np.uint16], NDArray[np.uint16], NDArray[np.uint8]]:
        """low, high and state of all slots: [slots, rows]."""
        shape = (len(self.slots), self.width)
        low, high, state = np.zeros(shape, np.uint16), np.zeros(shape, np.uint16), np.zeros(shape, np.uint8)
        for i, slot in enumerate(self.slots):
            width = len(slot.low)
            low[i, :width], high[i, :width], state[i, :width] = slot.low, slot.high, slot.state
        return low, high, state


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


def _load(place: Place, kind: type) -> Any:
    record = load(place.path, place.offset, place.size)
    if not isinstance(record, kind):
        raise Vanished(f"{place.path}: the record at offset {place.offset} is another one now")
    return record


def _header_from_name(path: Path, status: os.stat_result) -> RunHeader:
    """A header for a file whose own was damaged: names end in ".<writer>.<segment>.nanwatch"."""
    parts = path.name.split(".")
    named = len(parts) > 3 and parts[-2].isdecimal()
    return RunHeader(
        writer_id=parts[-3] if named else path.name, segment=int(parts[-2]) if named else 0, wall_time=status.st_mtime
    )
