"""Answers of the store: series, tiles and cells as frozen columns, and the state bits that go with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import Counts

#: State bits of answers: those of `format.magnitude`, and MEASURED wherever there was any measurement at all.
MEASURED: Final = 16
STATE_NAMES: Final = {
    magnitude.NAN: "nan",
    magnitude.POS_INF: "pos_inf",
    magnitude.NEG_INF: "neg_inf",
    magnitude.UNKNOWN: "unknown",
}
NONFINITE: Final = magnitude.NAN | magnitude.POS_INF | magnitude.NEG_INF | magnitude.UNKNOWN
#: Statistics of full steps, by their names in FullBlock, and those that follow from others.
FULL_STATS: Final = ("max_abs", "mean", "zero_share", "subnormal_share")
STATS: Final = ("norm", *FULL_STATS, "headroom", "update_ratio", "value")


@dataclass(frozen=True)
class Series:
    """Every measured step of one statistic of one tensor, in ascending steps.

    steps, iterations int64[n]; values float64[n], NaN where not finite or unknown; state uint8[n], bits as in
    STATE_NAMES and MEASURED; wall_times float64[n] in seconds since the epoch, NaN where unknown.
    """

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    state: NDArray[np.uint8]
    wall_times: NDArray[np.float64]
    iterations: NDArray[np.int64]


@dataclass(frozen=True)
class BinnedSeries:
    """A series in bins that hold at least one measurement. All [n].

    step int64, the first step that the bin covers (the step itself where steps_per_bin is 1); low, high float64,
    NaN where nothing finite was measured; state uint8.
    """

    step: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    state: NDArray[np.uint8]
    steps_per_bin: int


@dataclass(frozen=True)
class Tile:
    """256 bins of rows of one kind. low, high uint16[n, 256] magnitude codes, 0 for none; state uint8[n, 256]."""

    low: NDArray[np.uint16]
    high: NDArray[np.uint16]
    state: NDArray[np.uint8]
    first_step: int


@dataclass(frozen=True)
class FullCell:
    """Statistics of a tensor at one full step; None where not measured."""

    step: int
    max_abs: float | None
    mean: float | None
    zero_share: float | None
    subnormal_share: float | None
    headroom_octaves: float | None
    update_ratio: float | None


@dataclass(frozen=True)
class Cell:
    """All that is known of a tensor at the last step up to `step` at which each number was measured.

    `norm` is None for scalars, `value` for all others; both where nothing was measured. A state that is not finite
    leaves NaN or an infinity in them.
    """

    tag: str
    step: int
    measured_step: int | None = None
    wall_time: float | None = None
    iteration: int | None = None
    norm: float | None = None
    value: float | None = None
    state: int = 0
    full: FullCell | None = None
    counts_step: int | None = None
    counts: Counts | None = None

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the non-finite states."""
        return state_names(self.state)


def state_names(bits: int) -> tuple[str, ...]:
    """Names of the state bits that are set, worst first; MEASURED has none."""
    return tuple(name for bit, name in STATE_NAMES.items() if bits & bit)


def settle(state: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """State bits of single steps: where somebody counted what was not finite, "unknown" goes."""
    known = (state & (NONFINITE & ~magnitude.UNKNOWN)) > 0
    return np.where(known, state & ~np.uint8(magnitude.UNKNOWN), state).astype(np.uint8)


EMPTY_SERIES: Final = Series(
    np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.uint8), np.zeros(0), np.zeros(0, np.int64)
)
