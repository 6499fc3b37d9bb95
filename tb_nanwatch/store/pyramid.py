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
from tb_nanwatch.store.loader import MIDDLE_LEVEL, Loader
from tb_nanwatch.store.parts import SLOT_LEVEL, FilePart, Slot
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

    def add(self, bins: NDArray[np.int64], part: Reduced, rows: NDArray[np.int64]) -> None:
        """Merge `part`. bins int64[g], ascending, of this level: where its bins go; rows int64[m]: its columns."""
        at = bins - self.first
        where = at if len(rows) == self.low.shape[1] else np.ix_(at, rows)
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
    present = np.flatnonzero(rows >= 0)
    if bins.level >= SLOT_LEVEL:
        numbers = part.numbers[whole_begin:whole_end] >> (bins.level - SLOT_LEVEL)
        reduced = Reduced(*part.stacked).take(slice(whole_begin, whole_end)).columns(rows[present])
    else:
        middles = [loader.middle(part, slot, bins.level) for slot in part.slots[whole_begin:whole_end]]
        numbers = np.concatenate([n for n, _ in middles])
        reduced = Reduced.stack([middle.columns(rows[present]) for _, middle in middles])
    bins.add(*merge_rows(reduced, numbers), present)


def _add_blocks(bins: Bins, slot: Slot, start: int, stop: int, rows: NDArray[np.int64], loader: Loader) -> None:
    for block in slot.blocks:
        begin, end = slot.span(block)
        begin = max(begin, int(np.searchsorted(block.steps, start)))
        end = min(end, int(np.searchsorted(block.steps, stop)))
        columns = block.norms.columns(rows)
        present = np.flatnonzero(columns >= 0)
        if begin < end and len(present):
            codes = loader.norms(block)[begin:end, columns[present]]
            bins.add(*reduce_codes(codes, block.steps[begin:end] >> bins.level), present)


def _add_counts(bins: Bins, piece: Piece, tags: Sequence[str]) -> None:
    """States that somebody counted. A block may hold less: a norm overflows, a rotation skips a tensor."""
    seen = [row for row in piece.part.counts if row.step in piece.ranges]
    if not seen:
        return
    rows = np.array([row for row, tag in enumerate(tags) if tag in piece.ids], np.int64)
    ids = np.array([piece.ids[tags[row]].id for row in rows], np.int64)
    for counted in seen:
        _, mine, theirs = np.intersect1d(ids, counted.ids, return_indices=True)
        bins.state[(counted.step >> bins.level) - bins.first, rows[mine]] |= counted.bits[theirs]
