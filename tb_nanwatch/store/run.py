"""One run: what was recorded under one name, over all its attempts, workers and segment files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.errors import UsageError
from tb_nanwatch.format.records import Counts, FirstBatches, Incident, Note, RunHeader, TensorInfo
from tb_nanwatch.read.recordfile import Vanished
from tb_nanwatch.store import lines
from tb_nanwatch.store.cells import cell_of
from tb_nanwatch.store.columns import EMPTY_SERIES, STATS, BinnedSeries, Cell, Series, Tile
from tb_nanwatch.store.counts import CountsTable
from tb_nanwatch.store.finite import last_finite_step
from tb_nanwatch.store.loader import Loader
from tb_nanwatch.store.parts import MAX_STEP, FilePart
from tb_nanwatch.store.pyramid import bins_of
from tb_nanwatch.store.visible import Piece, Ranges

T = TypeVar("T")
TILE_BINS = 256
MAX_LEVEL = 40
RENEWALS = 3


@dataclass(frozen=True)
class Attempt:
    """One recorder's time on the run, with those of its fellow workers. Steps as recorded; last < first if none."""

    attempt: int
    writer_id: str
    header: RunHeader
    first_step: int
    last_step: int
    ended: bool
    dropped: int


@dataclass(frozen=True, eq=False)
class Run:
    """An immutable snapshot; cheap to hold.

    `version` changes whenever anything of the run did. `attempts` ascend. Questions about steps answer with the newest
    attempt that recorded a step, unless `attempt` names one. A file that is thinned or removed
    under a question is indexed again, so that the answer is the run's as it is then.
    """

    name: str
    path: Path
    version: str
    attempts: tuple[Attempt, ...]
    incidents: tuple[Incident, ...]
    parts: tuple[FilePart, ...] = field(repr=False)
    pieces: tuple[Piece, ...] = field(repr=False)
    infos: Mapping[str, TensorInfo] = field(repr=False)
    loader: Loader = field(repr=False)
    renew: Callable[[str], Run | None] = field(repr=False)

    # ------------------------------------------------------------ facts

    @property
    def header(self) -> RunHeader:
        """The newest attempt's."""
        return self.attempts[-1].header

    @functools.cached_property
    def _steps(self) -> NDArray[np.int64]:
        steps: NDArray[np.int64] = np.unique(np.concatenate([np.zeros(0, np.int64), *(p.steps() for p in self.pieces)]))
        return steps

    @property
    def first_step(self) -> int:
        """First recorded step, 0 if there is none."""
        return int(self._steps[0]) if len(self._steps) else 0

    @property
    def last_step(self) -> int:
        """Last recorded step, -1 if there is none."""
        return int(self._steps[-1]) if len(self._steps) else -1

    @property
    def steps(self) -> int:
        """Number of distinct recorded steps."""
        return len(self._steps)

    @property
    def started(self) -> float:
        """When the first recorder began, in seconds since the epoch."""
        return min(p.header.wall_time for p in self.parts)

    @property
    def updated(self) -> float:
        """Time of the newest record, in seconds since the epoch."""
        return max(self.started, *(p.updated for p in self.parts))

    @property
    def ended(self) -> bool:
        """True if the newest attempt's recorders said goodbye."""
        return self.attempts[-1].ended

    @functools.cached_property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """Every tensor once, in forward order."""
        return tuple(sorted(self.infos.values(), key=lambda info: info.order))

    def by_tag(self, tag: str) -> TensorInfo | None:
        """The tensor of a tag such as "weight/dense/kernel"."""
        return self.infos.get(tag)

    def kind(self, kind: str) -> tuple[TensorInfo, ...]:
        """The tensors of a kind in forward order: the rows of its heatmap."""
        return tuple(info for info in self.tensors if info.kind == kind)

    @functools.cached_property
    def counts(self) -> Mapping[int, Mapping[str, Counts]]:
        """Step to tag to exact counts; read from disk when asked for."""
        return CountsTable(self.pieces, self.loader)

    @property
    def notes(self) -> tuple[Note, ...]:
        """Notes of all attempts, by step."""
        return tuple(sorted((note for part in self.parts for note in part.notes), key=lambda note: note.step))

    @property
    def batch(self) -> FirstBatches | None:
        """What the first batches of the newest attempt that saw some are made of; None where nobody looked."""
        seen = [(p.header.attempt, p.batches.step, p.batches) for p in self.parts if p.batches is not None]
        return max(seen, key=lambda found: found[:2])[2] if seen else None

    @property
    def damage(self) -> tuple[str, ...]:
        """What could not be read, and why."""
        return tuple(sentence for part in self.parts for sentence in part.damage)

    @functools.cached_property
    def last_finite_step(self) -> int | None:
        """Last step before the first incident (or of all) at which no loss, gradient or weight was non-finite."""
        return self._ask(lambda run, loader: last_finite_step(run.pieces, run.infos, run.incidents, loader))

    # ------------------------------------------------------------ numbers

    def series(
        self,
        tag: str,
        stat: str = "norm",
        first: int | None = None,
        last: int | None = None,
        attempt: int | None = None,
    ) -> Series:
        """Every measured step in first..last. Empty for an unknown tag; UsageError for an unknown stat."""
        _check(stat)
        start, stop = first or 0, MAX_STEP if last is None else last + 1

        def answer(run: Run, loader: Loader) -> Series:
            info = run.by_tag(tag)
            if info is None:
                return EMPTY_SERIES
            return lines.series(run.seen(start, stop, attempt), info, stat, loader)

        return self._ask(answer)

    def binned(self, tag: str, stat: str, first: int, last: int, bins: int, attempt: int | None = None) -> BinnedSeries:
        """At most about `bins` points over first..last; each measured step a point where there are fewer."""
        _check(stat)

        def answer(run: Run, loader: Loader) -> BinnedSeries:
            info = run.by_tag(tag)
            if info is None:
                return lines.bin_series(EMPTY_SERIES, 0, 1)
            pieces = run.seen(first, last + 1, attempt)
            return lines.binned(pieces, info, stat, first, min(last, run.last_step), max(1, bins), loader)

        return self._ask(answer)

    def tile(self, kind: str, level: int, tile: int, rows: slice | None = None, attempt: int | None = None) -> Tile:
        """256 bins of 2**level steps of the rows of a kind. Level 0 to 40, tile from 0 on; UsageError otherwise."""
        if not 0 <= level <= MAX_LEVEL or tile < 0:
            raise UsageError(f"level {level}, tile {tile}: levels go from 0 to {MAX_LEVEL}, tiles begin at 0")

        def answer(run: Run, loader: Loader) -> Tile:
            tags = [info.tag for info in run.kind(kind)][rows or slice(None)]
            first = tile * TILE_BINS
            if first << level > MAX_STEP:
                none = np.zeros((len(tags), TILE_BINS), np.uint16)
                return Tile(none, none, none.astype(np.uint8), first << level)
            bins = bins_of(run.seen(0, MAX_STEP, attempt), tags, level, first, TILE_BINS, loader)
            return Tile(
                low=np.ascontiguousarray(bins.low.T),
                high=np.ascontiguousarray(bins.high.T),
                state=np.ascontiguousarray(bins.state.T),
                first_step=first << level,
            )

        return self._ask(answer)

    def cell(self, tag: str, step: int, attempt: int | None = None) -> Cell:
        """All that is known of a tensor at the last step up to `step` at which each number was measured."""

        def answer(run: Run, loader: Loader) -> Cell:
            info = run.by_tag(tag)
            return Cell(tag, step) if info is None else cell_of(run.seen(0, step + 1, attempt), info, step, loader)

        return self._ask(answer)

    def warm(self) -> None:
        """Unpack ahead what tiles in the middle of the zoom range need; for a server's background thread."""

        def answer(run: Run, loader: Loader) -> None:
            for piece in run.pieces:
                loader.warm(piece.part)

        self._ask(answer)

    def seen(self, start: int, stop: int, attempt: int | None = None) -> tuple[Piece, ...]:
        """Files as a question about start..stop - 1 sees them."""
        if attempt is None:
            return tuple(piece.restricted(start, stop) for piece in self.pieces)
        mine = (replace(piece, ranges=Ranges()) for piece in self.pieces if piece.attempt == attempt)
        return tuple(piece.restricted(start, stop) for piece in mine)

    def _ask(self, question: Callable[[Run, Loader], T]) -> T:
        """The answer from the files as they are; from what is left of them if they keep changing."""
        run = self
        for _ in range(RENEWALS):
            try:
                return question(run, run.loader)
            except Vanished:
                run = run.renew(run.name) or run
        return question(run, replace(run.loader, forgiving=True))


def _check(stat: str) -> None:
    if stat not in STATS:
        raise UsageError(f"no statistic is called {stat!r}: choose one of {', '.join(STATS)}")
