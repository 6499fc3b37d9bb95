"""A short stretch of steps of every tensor of a kind at once, read through the pyramid's finest level."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.format import magnitude
from tb_nanwatch.store.columns import NONFINITE
from tb_nanwatch.store.run import Run

TILE_BINS: Final = 256


def norms(run: Run, kind: str, first: int, last: int) -> NDArray[np.float64]:
    """Norms of the tensors of `kind` at steps `first` to `last` inclusive.

    Returns:
        float64[tensors, last - first + 1], rows as in `run.kind(kind)`; NaN where a norm was not measured, infinity
        where it was not finite.
    """
    first = max(first, 0)
    tiles = [run.tile(kind, 0, t) for t in range(first // TILE_BINS, last // TILE_BINS + 1)]
    codes = np.concatenate([tile.high for tile in tiles], axis=1)
    state = np.concatenate([tile.state for tile in tiles], axis=1)
    values = np.where(codes == magnitude.NOT_MEASURED, np.nan, magnitude.decode(codes))
    values[state & NONFINITE != 0] = np.inf
    start = first - first // TILE_BINS * TILE_BINS
    return values[:, start : start + last - first + 1]


def carried_forward(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each row with gaps filled by the last value before them; NaN stays where there is none.

    Recorders may measure tensors in rotation: a total over tensors then needs each one's latest norm.
    """
    known = ~np.isnan(values)
    latest = np.maximum.accumulate(np.where(known, np.arange(values.shape[1]), 0), axis=1)
    return np.take_along_axis(values, latest, axis=1)


def total_norm(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """L2 norm over all tensors that were measured at all, float64[steps].

    NaN where one of them is not known yet, infinity where one is not finite.
    """
    values = values[~np.isnan(values).all(axis=1)]
    if not len(values):
        return np.full(values.shape[1], np.nan)
    return np.sqrt(np.square(carried_forward(values)).sum(axis=0))
