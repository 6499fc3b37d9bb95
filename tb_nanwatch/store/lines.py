"""Series of one statistic of one tensor: every measured step, or bins of them for a chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.stats import dtypes
from tb_nanwatch.store.columns import EMPTY_SERIES, MEASURED, NONFINITE, BinnedSeries, Series, settle
from tb_nanwatch.store.loader import Loader
from tb_nanwatch.store.pyramid import bins_of
from tb_nanwatch.store.visible import Piece

Pieces = Sequence[Piece]


def series(pieces: Pieces, info: TensorInfo, stat: str, loader: Loader) -> Series:
    """Every measured step of the pieces' visible steps. Raises Vanished."""
    if stat == "value":
        return _scalars(pieces, info, loader)
    if stat == "norm":
        return _norms(pieces, info.tag, loader)
    if stat == "headroom":
        largest = _full(pieces, info.tag, "max_abs", loader)
        with np.errstate(divide="ignore"):
            octaves = np.log2(dtypes.largest(info.dtype)) - np.log2(largest.values)
        return replace(largest, values=np.where(np.isfinite(octaves), octaves, np.nan))
    if stat == "update_ratio":
        return _update_ratio(pieces, info, loader)
    return _full(pieces, info.tag, stat, loader)


def binned(
    pieces: Pieces, info: TensorInfo, stat: str, first: int, last: int, bins: int, loader: Loader
) -> BinnedSeries:
    """At most about `bins` points over first..last; single steps where there are no more than that. Raises Vanished."""
    first, last = max(0, first), max(0, last)
    level = max(0, int(np.ceil(np.log2(max(1, last - first + 1) / bins))))
    if stat == "norm" and _visible_steps(pieces) > bins:
        start = first >> level
        found = bins_of(pieces, [info.tag], level, start, (last >> level) - start + 1, loader)
        low, high, state = found.low[:, 0], found.high[:, 0], found.state[:, 0]
        there = np.flatnonzero(state)
        return BinnedSeries(
            step=(start + there) << level,
            low=magnitude.decode(low[there]),
            high=magnitude.decode(high[there]),
            state=state[there],
            steps_per_bin=1 << level,
        )
    return bin_series(series(pieces, info, stat, loader), level, bins)


def bin_series(line: Series, level: int, bins: int) -> BinnedSeries:
    """A series in bins of 2**level steps, or as it is where it has no more than `bins` steps."""
    if len(line.steps) <= bins:
        return BinnedSeries(line.steps, line.values, line.values, line.state, 1)
    numbers = line.steps >> level
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    return BinnedSeries(
        step=numbers[starts] << level,
        low=np.fmin.reduceat(line.values, starts),
        high=np.fmax.reduceat(line.values, starts),
        state=np.bitwise_or.reduceat(line.state, starts),
        steps_per_bin=1 << level,
    )


def _visible_steps(pieces: Pieces) -> int:
    return sum(end - begin for piece in pieces for begin, end in piece.rows_of(piece.part.clock[0]))


# ---------------------------------------------------------------- one kind of statistic each


class _Parts:
    """Columns gathered from blocks of several files, put into one ascending line at the end."""

    def __init__(self) -> None:
        self._columns: list[tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.uint8], Any, Any]] = []

    def add(
        self,
        steps: NDArray[np.int64],
        values: NDArray[np.float64],
        state: NDArray[np.uint8],
        wall_times: NDArray[np.float64] | None = None,
        iterations: NDArray[np.int64] | None = None,
    ) -> None:
        walls = np.full(len(steps), np.nan) if wall_times is None else wall_times
        self._columns.append(
            (steps, values, state, walls, np.full(len(steps), -1) if iterations is None else iterations)
        )

    def line(self) -> Series:
        """Ascending steps. Where several workers measured a step: the first of them, and the states of all."""
        if not self._columns:
            return EMPTY_SERIES
        steps, values, state, walls, iterations = (np.concatenate(c) for c in zip(*self._columns, strict=True))
        order = np.argsort(steps, kind="stable")
        steps = steps[order]
        starts = np.flatnonzero(np.diff(steps, prepend=-1))
        if not len(starts):
            return EMPTY_SERIES
        chosen = order[starts]
        return Series(
            steps=steps[starts],
            values=values[chosen],
            state=np.bitwise_or.reduceat(state[order], starts),
            wall_times=walls[chosen],
            iterations=iterations[chosen].astype(np.int64),
        )


def _norms(pieces: Pieces, tag: str, loader: Loader) -> Series:
    parts = _Parts()
    for piece in pieces:
        info = piece.ids.get(tag)
        if info is None:
            continue
        for block, begin, end in piece.blocks():
            column = block.norms.position.get(info.id)
            if column is None:
                continue
            codes = loader.norms(block)[begin:end, column]
            seen = np.flatnonzero(codes)
            codes = codes[seen]
            values = magnitude.decode(codes)
            at = begin + seen
            parts.add(
                block.steps[at],
                np.where(np.isfinite(values), values, np.nan),
                magnitude.to_bits(codes) | np.uint8(MEASURED),
                block.wall_times[at],
                block.iterations[at],
            )
    return _counted(parts, pieces, tag)


def _scalars(pieces: Pieces, info: TensorInfo, loader: Loader) -> Series:
    parts = _Parts()
    for piece in pieces:
        mine = piece.ids.get(info.tag)
        if mine is None:
            continue
        for block, begin, end in piece.blocks():
            if mine.id not in block.scalar_ids:
                continue
            values = loader.scalars(block)[begin:end, block.scalar_ids.index(mine.id)].astype(np.float64)
            state = scalar_state(values, info.kind)
            at = np.flatnonzero(state)
            parts.add(
                block.steps[begin + at],
                np.where(np.isfinite(values[at]), values[at], np.nan),
                state[at],
                block.wall_times[begin + at],
                block.iterations[begin + at],
            )
    return _counted(parts, pieces, info.tag)


def scalar_state(values: NDArray[np.float64], kind: str) -> NDArray[np.uint8]:
    """State bits of stored scalars, 0 where not measured.

    A file says NaN both for NaN and for "not measured at this step". A loss is measured at every step, so there
    it is a NaN; anywhere else it is a gap, unless counts say otherwise.
    """
    state = np.full(len(values), MEASURED, np.uint8)
    state[np.isposinf(values)] |= magnitude.POS_INF
    state[np.isneginf(values)] |= magnitude.NEG_INF
    state[np.isnan(values)] = MEASURED | magnitude.NAN if kind == "loss" else 0
    return state


def _counted(parts: _Parts, pieces: Pieces, tag: str) -> Series:
    """The line, with the states that somebody counted."""
    for steps, bits in _count_states(pieces, tag):
        parts.add(steps, np.array([np.nan]), bits | np.uint8(MEASURED))
    line = parts.line()
    state = settle(line.state)
    return replace(line, state=state, values=np.where(state & NONFINITE, np.nan, line.values))


def _count_states(pieces: Pieces, tag: str) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint8]]]:
    """Steps at which a tensor was counted as not finite, and the bits: int64[1], uint8[1] each."""
    for piece in pieces:
        info = piece.ids.get(tag)
        for row in piece.part.counts if info is not None else ():
            if row.step in piece.ranges:
                bits = row.bits[row.ids == info.id]  # type: ignore[union-attr]
                if len(bits):
                    yield np.array([row.step]), bits[:1]


def _full(pieces: Pieces, tag: str, stat: str, loader: Loader) -> Series:
    parts = _Parts()
    for piece in pieces:
        info = piece.ids.get(tag)
        if info is None:
            continue
        for full in piece.part.fulls:
            column = full.columns.position.get(info.id)
            if column is None:
                continue
            for begin, end in piece.rows_of(full.steps):
                values = getattr(loader.full(full), stat)[begin:end, column].astype(np.float64)
                seen = np.flatnonzero(~np.isnan(loader.full(full).max_abs[begin:end, column]))
                state = np.full(len(seen), MEASURED, np.uint8)
                steps = full.steps[begin:end][seen]
                parts.add(steps, values[seen], state, *piece.times(steps))
    line = parts.line()
    for steps, bits in _count_states(pieces, tag):
        line.state[np.isin(line.steps, steps)] |= bits
    return line


def _update_ratio(pieces: Pieces, info: TensorInfo, loader: Loader) -> Series:
    """Update norm over weight norm at the steps where both were measured."""
    update = _norms(pieces, f"update/{info.name}", loader)
    weight = _norms(pieces, f"weight/{info.name}", loader)
    _, mine, others = np.intersect1d(update.steps, weight.steps, assume_unique=True, return_indices=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = update.values[mine] / weight.values[others]
    return Series(
        steps=update.steps[mine],
        values=np.where(np.isfinite(ratio), ratio, np.nan),
        state=update.state[mine] | weight.state[others],
        wall_times=update.wall_times[mine],
        iterations=update.iterations[mine],
    )
