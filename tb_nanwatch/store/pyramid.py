"""Bins over steps: smallest and largest finite code and all states of each, exact at every level.

A bin of level L covers 2**L steps. Level 8 and up come from the summaries that are in memory; levels 4 to 7 from a
middle level of 16 steps that is kept once it was computed; finer ones from unpacked blocks. Where only a part of a
slot is visible (a later attempt replaced the rest) its blocks are unpacked at every level, so that no bin tells of a
step that it should not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.format import magnitude
from tb_nanwatch.store.columns import MEASURED
from tb_nanwatch.store.fileindex import SLOT_LEVEL, FilePart, Slot
from tb_nanwatch.store.loader import MIDDLE_LEVEL, Loader
from tb_nanwatch.store.reduce import Reduced, merge_rows, reduce_codes
from tb_nanwatch.store.visible import Piece


@dataclass
class Bins:
    """Accumulator. low, high uint16[bins, rows]; state uint8[bins, rows]; bin b is the (first + b)-th of its level."""

    level: int
    first: int
    low: NDArray[np.uint16]
    high: NDArray[np.uint16]
    state: NDArray[np.uint8]

    @classmethod
    def empty(cls, level: int, first: int, count: int, rows: int) -> Bins:
        """Bins that hold nothing yet."""
        low = np.full((count, rows), magnitude.LAST, np.uint16)
        return cls(level, first, low, np.zeros_like(low), np.zeros(low.shape, np.uint8))

    @property
    def steps(self) -> tuple[int, int]:
        """First step that the bins cover, and the first behind them."""
        return self.first << self.level, (self.first + len(self.low)) << self.level

    def add(self, bins: NDArray[np.int64], columns: NDArray[np.int64], part: Reduced) -> None:
        """Merge columns of `part`. bins int64[g], ascending, of this level; columns int64[rows], -1 for absent ones."""
        present = np.flatnonzero(columns >= 0)
        if not len(present):
            return
        part = part.columns(columns[present])
        at = bins - self.first
        where = at if len(present) == len(columns) else np.ix_(at, present)
        low = np.where(part.high > 0, part.low, np.uint16(magnitude.LAST))
        self.low[where] = np.minimum(self.low[where], low)
        self.high[where] = np.maximum(self.high[where], part.high)
        self.state[where] |= part.state

    def finish(self) -> Bins:
        """The bins with 0 for "nothing finite", and MEASURED where there was a measurement."""
        self.low[self.high == 0] = 0
        self.state[(self.high > 0) | (self.state > 0)] |= MEASURED
        return self


def bins_of(pieces: Iterable[Piece], tags: Sequence[str], level: int, first: int, count: int, loader: Loader) -> Bins:
    """`count` bins of the norms of `tags`, from bin number `first` of the level on. Raises Vanished."""
    bins = Bins.empty(level, first, count, len(tags))
    for piece in pieces:
        piece = piece.restricted(*bins.steps)  # noqa: PLW2901  # only what the bins cover
        rows = piece.rows(tags)
        if (rows >= 0).any():
            for start, stop in piece.ranges:
                _add_range(bins, piece.part, start, stop, rows, loader)
        _add_counts(bins, piece, tags)
    return bins.finish()


def _add_range(bins: Bins, part: FilePart, start: int, stop: int, rows: NDArray[np.int64], loader: Loader) -> None:
    """Merge the steps start..stop - 1 of a file."""
    firsts, lasts = part.extents
    begin, end = int(np.searchsorted(lasts, start)), int(np.searchsorted(firsts, stop))
    if begin >= end:
        return
    whole_begin = begin + (firsts[begin] < start)
    whole_end = max(whole_begin, end - (lasts[end - 1] >= stop))
    if bins.level < MIDDLE_LEVEL:
        whole_begin = whole_end = end
    for i in (*range(begin, whole_begin), *range(whole_end, end)):
        _add_blocks(bins, part.slots[i], start, stop, rows, loader)
    if whole_begin >= whole_end:
        return
    if bins.level >= SLOT_LEVEL:
        numbers = part.numbers[whole_begin:whole_end]
        summaries = Reduced(*part.stacked).take(slice(whole_begin, whole_end)).columns(np.maximum(rows, 0))
        here = np.where(rows >= 0, np.arange(len(rows)), -1)
        merged = merge_rows(summaries, numbers >> (bins.level - SLOT_LEVEL))
        bins.add(merged[0], here, merged[1])
        return
    for slot in part.slots[whole_begin:whole_end]:
        numbers, middle = loader.middle(part, slot)
        known = np.where(rows < middle.low.shape[1], rows, -1)
        merged = merge_rows(middle.columns(np.maximum(known, 0)), numbers >> (bins.level - MIDDLE_LEVEL))
        bins.add(merged[0], np.where(known >= 0, np.arange(len(rows)), -1), merged[1])


def _add_blocks(bins: Bins, slot: Slot, start: int, stop: int, rows: NDArray[np.int64], loader: Loader) -> None:
    for block in slot.blocks:
        begin, end = slot.span(block)
        begin = max(begin, int(np.searchsorted(block.steps, start)))
        end = min(end, int(np.searchsorted(block.steps, stop)))
        columns = block.norms.columns(rows)
        present = columns >= 0
        if begin >= end or not present.any():
            continue
        codes = loader.norms(block)[begin:end, np.maximum(columns, 0)]
        numbers, reduced = reduce_codes(codes, block.steps[begin:end] >> bins.level)
        bins.add(numbers, np.where(present, np.arange(len(rows)), -1), reduced)


def _add_counts(bins: Bins, piece: Piece, tags: Sequence[str]) -> None:
    """States that somebody counted. A block may hold less: a norm overflows, a rotation skips a tensor."""
    seen = [row for row in piece.part.counts if row.step in piece.ranges]
    if not seen:
        return
    row_of = {piece.ids[tag].id: row for row, tag in enumerate(tags) if tag in piece.ids}
    for counted in seen:
        at = (counted.step >> bins.level) - bins.first
        for tensor, bits in zip(counted.ids.tolist(), counted.bits.tolist(), strict=True):
            row = row_of.get(tensor)
            if row is not None:
                bins.state[at, row] |= bits
