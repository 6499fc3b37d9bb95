"""Bulk from disk through the cache: unpacked blocks, and the middle level of the pyramid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.errors import CorruptData
from tb_nanwatch.format.records import CountsRow, FullBlock
from tb_nanwatch.read.recordfile import Vanished
from tb_nanwatch.store.cache import Cache
from tb_nanwatch.store.parts import Block, CountsAt, FilePart, Full, Slot
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

    def middle(self, part: FilePart, slot: Slot, level: int = MIDDLE_LEVEL) -> tuple[NDArray[np.int64], Reduced]:
        """A slot in bins of 2**level steps, from 16 on: bin numbers int64[g], contents [g, rows of the file]."""

        def compute() -> tuple[NDArray[np.int64], Reduced]:
            if level <= MIDDLE_LEVEL:
                return self._middle(slot, part.width)
            numbers, finer = self.middle(part, slot, level - 1)
            return merge_rows(finer, numbers >> 1)

        return self.middles.get((part.uid, slot.number, len(slot.blocks), part.width, level), compute)

    def warm(self, part: FilePart) -> None:
        """Compute the middle level ahead, as far as the cache has room. Raises Vanished."""
        for slot in part.slots:
            if self.middles.full:
                return
            self.middle(part, slot)

    def _middle(self, slot: Slot, width: int) -> tuple[NDArray[np.int64], Reduced]:
        found: list[tuple[NDArray[np.int64], Reduced]] = []
        for block in slot.blocks:
            start, stop = slot.span(block)
            bins, part = reduce_codes(self.norms(block)[start:stop], block.steps[start:stop] >> MIDDLE_LEVEL)
            found.append((bins, part.spread(block.norms.rows, width)))
        if len(found) == 1:
            return found[0]
        bins = np.concatenate([b for b, _ in found])
        order = np.argsort(bins, kind="stable")
        return merge_rows(Reduced.stack([p for _, p in found]).take(order), bins[order])

    def _get(self, key: object, load: Callable[[], T], missing: Callable[[], T]) -> T:
        def compute() -> T:
            try:
                return load()
            except CorruptData:  # the checksum fits, the planes do not: nobody will ever unpack them
                return missing()

        try:
            return self.blocks.get(key, compute)
        except Vanished:
            if not self.forgiving:
                raise
            return missing()
