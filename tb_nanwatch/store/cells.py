"""Everything that is known of one tensor at one step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import SCALAR_KINDS, TensorInfo
from tb_nanwatch.store import lines
from tb_nanwatch.store.columns import EMPTY_SERIES, FULL_STATS, NONFINITE, Cell, FullCell, Series
from tb_nanwatch.store.loader import Loader
from tb_nanwatch.store.parts import SLOT_LEVEL, SLOT_STEPS
from tb_nanwatch.store.visible import Piece


def cell_of(pieces: Sequence[Piece], info: TensorInfo, step: int, loader: Loader) -> Cell:
    """The cell of a tensor; the pieces are seen up to `step`. Raises Vanished."""
    scalar = info.kind in SCALAR_KINDS
    line = _latest(pieces, info, "value" if scalar else "norm", loader)
    cell: dict[str, object] = {}
    if len(line.steps):
        value = _last_value(line)
        cell = {
            "measured_step": int(line.steps[-1]),
            "wall_time": None if np.isnan(line.wall_times[-1]) else float(line.wall_times[-1]),
            "iteration": None if line.iterations[-1] < 0 else int(line.iterations[-1]),
            "value" if scalar else "norm": value,
            "state": int(line.state[-1]),
        }
    cell["full"] = _full(pieces, info, loader)
    counted = [(row.step, piece, row) for piece in pieces for row in piece.part.counts if row.step in piece.ranges]
    for at, piece, row in sorted(counted, key=lambda c: -c[0]):
        mine = piece.ids.get(info.tag)
        found = loader.counts(row).counts.get(mine.id) if mine is not None else None
        if found is not None:
            cell["counts_step"], cell["counts"] = at, found
            break
    return Cell(info.tag, step, **cell)  # type: ignore[arg-type]


def _full(pieces: Sequence[Piece], info: TensorInfo, loader: Loader) -> FullCell | None:
    latest = {stat: _latest(pieces, info, stat, loader) for stat in (*FULL_STATS, "headroom", "update_ratio")}
    if not len(latest["max_abs"].steps):
        return None

    def value(stat: str) -> float | None:
        values = latest[stat].values
        return float(values[-1]) if len(values) and np.isfinite(values[-1]) else None

    step = int(latest["max_abs"].steps[-1])
    return FullCell(
        step=step,
        max_abs=value("max_abs"),
        mean=value("mean"),
        zero_share=value("zero_share"),
        subnormal_share=value("subnormal_share"),
        headroom_octaves=value("headroom"),
        update_ratio=value("update_ratio"),
    )


def _latest(pieces: Sequence[Piece], info: TensorInfo, stat: str, loader: Loader) -> Series:
    """The end of a series, found without reading all of it."""
    stop = 1 + max((stop - 1 for piece in pieces for _, stop in piece.ranges), default=-1)
    stop = min(stop, 1 + max((piece.last() for piece in pieces), default=-1))
    width = SLOT_STEPS
    while stop > 0:
        if stat == "norm":  # the summaries know where to look
            stop = min(stop, (1 + max((piece.last_slot(info.tag, stop) for piece in pieces), default=-1)) << SLOT_LEVEL)
        start = max(0, (stop - 1 >> SLOT_LEVEL << SLOT_LEVEL) - width + SLOT_STEPS)
        line = lines.series([piece.restricted(start, stop) for piece in pieces], info, stat, loader)
        if len(line.steps):
            return line
        stop, width = start, width * 4
    return EMPTY_SERIES


def _last_value(line: Series) -> float:
    """Value at the end of a series, with what is not finite as itself."""
    state = int(line.state[-1])
    if not state & NONFINITE:
        return float(line.values[-1])
    if state & (magnitude.NAN | magnitude.UNKNOWN):
        return float("nan")
    return float("inf") if state & magnitude.POS_INF else float("-inf")
