"""What is known of one event file without its bulk: summaries in memory, places on disk for the rest. Immutable.

Blocks are gathered by slot: slot s holds the steps 256 s to 256 s + 255, as recorders cut them. However small the
blocks are that a slow run leaves, the memory goes with the steps and not with their number.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.format.records import (
    Closed,
    CountsRow,
    FirstBatches,
    FullBlock,
    Incident,
    Note,
    RunHeader,
    StepBlock,
    TensorInfo,
)
from tb_nanwatch.read.recordfile import Vanished, load

SLOT_LEVEL: Final = 8
SLOT_STEPS: Final = 1 << SLOT_LEVEL
MAX_STEP: Final = 1 << 53


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
    batches: FirstBatches | None
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


def _load(place: Place, kind: type) -> Any:
    record = load(place.path, place.offset, place.size)
    if not isinstance(record, kind):
        raise Vanished(f"{place.path}: the record at offset {place.offset} is another one now")
    return record
