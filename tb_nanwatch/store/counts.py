"""Exact counts of steps in trouble, as a mapping that reads the disk only when asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tb_nanwatch.format.records import Counts
from tb_nanwatch.read.recordfile import Vanished
from tb_nanwatch.store.loader import Loader
from tb_nanwatch.store.parts import CountsAt
from tb_nanwatch.store.visible import Piece


class CountsTable(Mapping[int, Mapping[str, Counts]]):
    """Step to tag to counts, steps ascending. Where several workers counted, the first that found most bad elements."""

    def __init__(self, pieces: Sequence[Piece], loader: Loader) -> None:
        self._loader = loader
        self._rows: dict[int, list[tuple[Piece, CountsAt]]] = defaultdict(list)
        for piece in pieces:
            for row in piece.part.counts:
                if row.step in piece.ranges:
                    self._rows[row.step].append((piece, row))

    def __getitem__(self, step: int) -> Mapping[str, Counts]:
        if step not in self._rows:
            raise KeyError(step)
        found: dict[str, Counts] = {}
        for piece, row in self._rows[step]:
            try:
                counts = self._loader.counts(row).counts
            except Vanished:
                continue  # thinned away meanwhile; the next snapshot knows
            tags = {info.id: tag for tag, info in piece.ids.items()}
            for tensor, count in counts.items():
                tag = tags.get(tensor)
                if tag is not None and (tag not in found or count.bad > found[tag].bad):
                    found[tag] = count
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._rows))

    def __len__(self) -> int:
        return len(self._rows)
