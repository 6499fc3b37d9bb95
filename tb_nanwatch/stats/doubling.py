"""Steady growth: a straight line through the logarithms of the newest magnitudes, and whether it may be believed.

What levels off, spikes, wanders or only comes back to where it was is no steady growth, however large it becomes.
Lines are tried from the longest stretch to the shortest: growth that began a few steps ago is seen as soon as it is
beyond doubt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

LENGTHS: Final = (128, 96, 64, 48, 32, 24, 16, 12, 8, 7, 6, 5)  # of the stretches tried, in measured steps
WINDOW: Final = LENGTHS[0]
FEWEST_POINTS: Final = LENGTHS[-1]
FEWEST_OCTAVES: Final = 4.0
EVIDENCE: Final = 40.0  # octaves times points: five points must rise by 8 octaves, ten by 4
STRAIGHT: Final = 0.95  # share of the variance that the line explains
STRAIGHTER: Final = 0.99  # for this it may be up to half as long
HIGHER: Final = 2.0  # octaves above all that came before: the gradient of a hard sample after easy ones is not
RECENT_SHARE: Final = 3  # the newest of so many parts of a stretch
STILL: Final = 0.7  # of the whole stretch's slope, in its newest part: growth that levels off falls below


@dataclass(frozen=True)
class Doubling:
    """Steady growth from `first_step` to `last_step`, where it still goes on.

    rate: octaves (doublings) per step; octaves: risen between the two steps; level: log2 of the magnitude at the last.
    """

    first_step: int
    last_step: int
    rate: float
    octaves: float
    level: float

    @property
    def time(self) -> float:
        """Steps in which the magnitude doubles."""
        return 1.0 / self.rate

    def words(self, grows: str = "grows", doubles: str = "doubles") -> str:
        """How fast: "doubles every 3.2 steps" or "grows 8-fold at every step"; the verbs as the sentence needs."""
        if self.rate < 1:
            return f"{doubles} every {self.time:.2g} steps"
        factor = 2.0 ** min(self.rate, 64.0)
        number = f"{factor:.0f}" if 10 <= factor < 1000 else f"{factor:.2g}".replace("e+0", "e")
        return f"{grows} {number}-fold at every step"


def doubling(steps: NDArray[np.int64], values: NDArray[np.float64]) -> Doubling | None:
    """The steady growth that `values` end with, None if there is none.

    Args:
        steps: int64[n], ascending.
        values: float64[n], magnitudes; those that are zero or not finite are passed over.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        octaves = np.log2(np.abs(values))
    usable = np.isfinite(octaves)
    steps, octaves = steps[usable][-WINDOW:], octaves[usable][-WINDOW:]
    best: Doubling | None = None
    longest = len(steps)
    for length in (longest, *(length for length in LENGTHS if length < longest)):
        if length < FEWEST_POINTS or (best is not None and length < longest / 2):
            break
        found, straight = _steady(steps[-length:], octaves[-length:])
        if found is None or found.level < octaves[:-length].max(initial=-np.inf) + HIGHER:
            continue
        if straight >= STRAIGHTER:
            return found
        if best is None:
            best, longest = found, length
    return best


def _steady(steps: NDArray[np.int64], octaves: NDArray[np.float64]) -> tuple[Doubling | None, float]:
    """The growth of a whole stretch, None if it is not steady; the share of the variance that its line explains."""
    count = len(steps)
    span = int(steps[-1] - steps[0])
    if octaves[-1] <= octaves[0]:
        return None, 0.0
    rate, level = _line(steps, octaves)
    risen = rate * span
    if risen < FEWEST_OCTAVES or risen * count < EVIDENCE:
        return None, 0.0
    off = octaves - (level + rate * (steps - steps[-1]))
    straight = 1 - float(np.sum(off**2) / np.sum((octaves - octaves.mean()) ** 2))
    newest = max(FEWEST_POINTS - 1, -(-count // RECENT_SHARE))
    recent, height = _line(steps[-newest:], octaves[-newest:])
    if straight < STRAIGHT or recent < STILL * rate:
        return None, straight
    return Doubling(int(steps[0]), int(steps[-1]), max(rate, recent), risen, height), straight


def _line(steps: NDArray[np.int64], octaves: NDArray[np.float64]) -> tuple[float, float]:
    """Slope of the least-squares line, and its height at the last step."""
    x = (steps - steps[-1]).astype(np.float64)
    across = x - x.mean()
    slope = float(across @ octaves / (across @ across))
    return slope, float(octaves.mean() - slope * x.mean())
