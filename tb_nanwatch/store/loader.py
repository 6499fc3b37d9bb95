"""Bulk from disk through the cache: unpacked blocks, and the middle level of the pyramid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.format.records import CountsRow, FullBlock
from tb_nanwatch.read.recordfile import Vanished
from tb_nanwatch.store.cache import Cache
from tb_nanwatch.store.fileindex import Block, CountsAt, FilePart, Full, Slot
from tb_nanwatch.store.reduce import Reduced, merge_rows, reduce_codes

T = TypeVar("T")
MIDDLE_LEVEL: Final = 4


@dataclass(frozen=True)
class Loader:
    """Where the questions of a run get their bulk from.

    `blocks` and `middles` are caches. A strict loader raises Vanished for what is not on disk any more, so that
    the run can be indexed again; a `forgiving` one, the last resort, takes it for not measured.
    """

    blocks: Cache
    middles: Cache
    forgiving: bool = False

    def norms(self, block: Block) -> NDArray[np.uint16]:
        """Magnitude codes of a block: [steps, tensors]."""
        place = block.place
        return self._get(
            (place.uid, place.offset),
            lambda: block.load().norms,
            lambda: np.zeros((len(block.steps), len(block.norms.ids)), np.uint16),
        )

    def scalars(self, block: Block) -> NDArray[np.float32]:
        """Scalars of a block: [steps, scalars], NaN also where not measured."""
        if block.scalars is not None:
            return block.scalars
        return self._get(
            (block.place.uid, block.place.offset, "scalars"),
            lambda: block.load().scalars,
            lambda: np.full((len(block.steps), len(block.scalar_ids)), np.nan, np.float32),
        )

    def full(self, full: Full) -> FullBlock:
        """A block of full statistics."""
        shape = (len(full.steps), len(full.columns.ids))
        missing = np.full(shape, np.nan, np.float32)
        return self._get(
            (full.place.uid, full.place.offset),
            full.load,
            lambda: FullBlock(full.steps, full.columns.ids, missing.astype(np.float64), missing, missing, missing),
        )

    def counts(self, counts: CountsAt) -> CountsRow:
        """Exact counts of one step."""
        return self._get((counts.place.uid, counts.place.offset), counts.load, lambda: CountsRow(counts.step, {}))

    def middle(self, part: FilePart, slot: Slot) -> tuple[NDArray[np.int64], Reduced]:
        """A slot in bins of 16 steps: bin numbers int64[g], contents [g, rows of the file]."""
        return self.middles.get((part.uid, slot.number, len(slot.blocks)), lambda: self._middle(slot))

    def _middle(self, slot: Slot) -> tuple[NDArray[np.int64], Reduced]:
        found: list[tuple[NDArray[np.int64], Reduced]] = []
        for block in slot.blocks:
            start, stop = slot.span(block)
            bins, part = reduce_codes(self.norms(block)[start:stop], block.steps[start:stop] >> MIDDLE_LEVEL)
            found.append((bins, part.spread(block.norms.rows, len(slot.low))))
        if len(found) == 1:
            return found[0]
        bins = np.concatenate([b for b, _ in found])
        order = np.argsort(bins, kind="stable")
        return merge_rows(Reduced.stack([p for _, p in found]).take(order), bins[order])

    def _get(self, key: object, load: Callable[[], T], missing: Callable[[], T]) -> T:
        try:
            return self.blocks.get(key, load)
        except Vanished:
            if not self.forgiving:
                raise
            return missing()
