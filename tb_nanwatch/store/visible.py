"""Which steps of which file count: the newest attempt at a step hides the older ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.store.parts import MAX_STEP, SLOT_LEVEL, Block, FilePart


@dataclass(frozen=True)
class Ranges:
    """Half-open ranges of steps, ascending and apart."""

    pairs: tuple[tuple[int, int], ...] = ((0, MAX_STEP),)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self.pairs)

    def within(self, start: int, stop: int) -> Ranges:
        """What of them lies in start..stop - 1."""
        cut = ((max(a, start), min(b, stop)) for a, b in self.pairs)
        return Ranges(tuple((a, b) for a, b in cut if a < b))

    def without(self, start: int, stop: int) -> Ranges:
        """What of them does not lie in start..stop - 1."""
        return Ranges((*self.within(0, start).pairs, *self.within(stop, MAX_STEP).pairs))

    def __contains__(self, step: int) -> bool:
        return any(a <= step < b for a, b in self.pairs)


@dataclass(frozen=True)
class Piece:
    """One file as a question sees it: its visible steps, and the ids that its recorder gave to tags."""

    part: FilePart
    attempt: int
    ids: Mapping[str, TensorInfo]
    ranges: Ranges

    def rows(self, tags: Sequence[str]) -> NDArray[np.int64]:
        """Row of every tag in the file's summaries, -1 where it is not in any block: int64[tags]."""
        found = (self.ids.get(tag) for tag in tags)
        return np.array([-1 if info is None else self.part.row_of.get(info.id, -1) for info in found], np.int64)

    def blocks(self) -> Iterator[tuple[Block, int, int]]:
        """Blocks with visible steps, and the rows of them that are: first, and the one behind the last."""
        firsts, lasts = self.part.extents
        for start, stop in self.ranges:
            for i in range(int(np.searchsorted(lasts, start)), int(np.searchsorted(firsts, stop))):
                slot = self.part.slots[i]
                for block in slot.blocks:
                    begin, end = slot.span(block)
                    begin = max(begin, int(np.searchsorted(block.steps, start)))
                    end = min(end, int(np.searchsorted(block.steps, stop)))
                    if begin < end:
                        yield block, begin, end

    def rows_of(self, steps: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """Which of some ascending steps are visible: first, and the one behind the last, of each stretch."""
        for start, stop in self.ranges:
            begin, end = (int(i) for i in np.searchsorted(steps, [start, stop]))
            if begin < end:
                yield begin, end

    def steps(self) -> NDArray[np.int64]:
        """Visible steps with a row in a step block, ascending."""
        steps = self.part.clock[0]
        return np.concatenate([steps[:0], *(steps[begin:end] for begin, end in self.rows_of(steps))])

    def last(self) -> int:
        """Last visible step that anything is known of, -1 if there is none."""
        known = [
            self.steps()[-1:],
            *(full.steps[begin:end] for full in self.part.fulls for begin, end in self.rows_of(full.steps)),
        ]
        counted = [row.step for row in self.part.counts if row.step in self.ranges]
        return max([-1, *counted, *(int(steps[-1]) for steps in known if len(steps))])

    def last_slot(self, tag: str, stop: int) -> int:
        """Number of the last slot before step `stop` with a norm of the tag, or counts; -1 if there is none."""
        row = int(self.rows([tag])[0])
        counted = [
            row_.step >> SLOT_LEVEL for row_ in self.part.counts if row_.step in self.ranges and row_.step < stop
        ]
        _, high, state = self.part.stacked
        measured = np.flatnonzero((high[:, row] > 0) | (state[:, row] > 0)) if row >= 0 else np.zeros(0, np.int64)
        numbers = self.part.numbers[measured]
        numbers = numbers[numbers << SLOT_LEVEL < stop]
        return int(max([-1, *counted, *numbers[-1:]]))

    def times(self, steps: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Wall times (NaN where unknown) and iterations (-1) of steps."""
        known, walls, iterations = self.part.clock
        at = np.minimum(np.searchsorted(known, steps), max(0, len(known) - 1))
        if not len(known):
            return np.full(len(steps), np.nan), np.full(len(steps), -1)
        there = known[at] == steps
        return np.where(there, walls[at], np.nan), np.where(there, iterations[at], -1)

    def restricted(self, first: int, stop: int) -> Piece:
        """The same file, seen only in first..stop - 1."""
        return Piece(self.part, self.attempt, self.ids, self.ranges.within(first, stop))


def visible_ranges(extents: Mapping[int, tuple[int, int]]) -> dict[int, Ranges]:
    """Visible steps of every attempt, from its first and last recorded step.

    Within its extent an attempt hides all older ones, also at steps that it dropped or thinned: two
    histories woven into each other would show what never happened.
    """
    visible: dict[int, Ranges] = {}
    free = Ranges()
    for attempt in sorted(extents, reverse=True):
        visible[attempt] = free
        first, last = extents[attempt]
        free = free.without(first, last + 1)
    return visible
