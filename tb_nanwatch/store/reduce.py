"""Magnitude codes of steps reduced to bins: smallest and largest finite code, and every state bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.format import magnitude


@dataclass(frozen=True)
class Reduced:
    """Bins of some columns. low, high uint16[g, m], 0 where nothing finite; state uint8[g, m]."""

    low: NDArray[np.uint16]
    high: NDArray[np.uint16]
    state: NDArray[np.uint8]

    @classmethod
    def stack(cls, parts: Sequence[Reduced]) -> Reduced:
        """The bins of all, one behind the other."""
        return cls(*(np.concatenate([getattr(p, n) for p in parts]) for n in ("low", "high", "state")))

    def take(self, bins: Any) -> Reduced:
        """Some of the bins."""
        return Reduced(self.low[bins], self.high[bins], self.state[bins])

    def columns(self, columns: NDArray[np.int64]) -> Reduced:
        """Some of the columns."""
        return Reduced(self.low[:, columns], self.high[:, columns], self.state[:, columns])

    def spread(self, rows: NDArray[np.int64], count: int) -> Reduced:
        """The columns as `rows` of `count`; nothing was measured in the others."""
        if len(rows) == count and (rows == np.arange(count)).all():
            return self
        shape = (len(self.low), count)
        wide = Reduced(np.zeros(shape, np.uint16), np.zeros(shape, np.uint16), np.zeros(shape, np.uint8))
        wide.low[:, rows], wide.high[:, rows], wide.state[:, rows] = self.low, self.high, self.state
        return wide


def reduce_codes(codes: NDArray[np.uint16], bins: NDArray[np.int64]) -> tuple[NDArray[np.int64], Reduced]:
    """The bins that occur, ascending, and their contents. codes uint16[n, m]; bins int64[n], ascending, n >= 1."""
    starts = np.flatnonzero(np.diff(bins, prepend=bins[0] - 1))
    special = codes < magnitude.FIRST_FINITE
    if not special.any():
        state = np.zeros((len(starts), codes.shape[1]), np.uint8)
        return bins[starts], Reduced(_runs(np.minimum, codes, starts), _runs(np.maximum, codes, starts), state)
    finite = ~special | (codes == magnitude.ZERO)
    low = _runs(np.minimum, np.where(finite, codes, np.uint16(magnitude.LAST)), starts)
    high = _runs(np.maximum, np.where(finite, codes, np.uint16(0)), starts)
    state = _runs(np.bitwise_or, magnitude.to_bits(codes), starts)
    return bins[starts], Reduced(np.where(high > 0, low, np.uint16(0)), high, state)


def merge_rows(part: Reduced, bins: NDArray[np.int64]) -> tuple[NDArray[np.int64], Reduced]:
    """Coarser bins out of finer ones. bins int64[g], ascending: the bin that each row of `part` goes to."""
    starts = np.flatnonzero(np.diff(bins, prepend=bins[0] - 1))
    if len(starts) == len(bins):
        return bins, part
    high = _runs(np.maximum, part.high, starts)
    low = _runs(np.minimum, np.where(part.high > 0, part.low, np.uint16(magnitude.LAST)), starts)
    low = np.where(high > 0, low, np.uint16(0))
    return bins[starts], Reduced(low, high, _runs(np.bitwise_or, part.state, starts))


def _runs(function: np.ufunc, values: NDArray[Any], starts: NDArray[np.int64]) -> NDArray[Any]:
    count = len(values)
    if len(starts) == count:
        return values
    length = count // len(starts)
    if count == length * len(starts) and (starts == np.arange(len(starts)) * length).all():
        folded: NDArray[Any] = function.reduce(values.reshape(len(starts), length, -1), axis=1)
        return folded
    return function.reduceat(values, starts, axis=0)
