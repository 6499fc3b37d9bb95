"""When numbers that grow steadily will no longer fit into their dtype. The recorder asks while training, the report
afterwards; both get the same answer from the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.stats.doubling import FEWEST_OCTAVES, WINDOW, Doubling, doubling

NEAR: Final = 1 / 3  # of the octaves from 1 to the dtype's maximum; healthy numbers stay below, however they grow
AHEAD: Final = 2.0  # the forecast reaches no further than twice the stretch that it is drawn from
FRESH: Final = 16  # steps since the last measurement; some are measured in turns
MOST: Final = 8  # tensors looked at closely, the most urgent ones
PACE: Final = 8  # steps from which urgency is read


@dataclass(frozen=True)
class Forecast:
    """Row `row` outgrows its dtype in about `steps_left` steps after the last one of `growth`."""

    row: int
    growth: Doubling
    steps_left: float

    @property
    def step(self) -> int:
        """The first step that no longer holds it, as far as can be said."""
        return self.growth.last_step + self.steps

    @property
    def steps(self) -> int:
        """Whole steps that are left, at least one."""
        return max(1, math.ceil(self.steps_left))

    def about(self) -> str:
        """The steps left, no more exact than they are: "about 40 steps"."""
        step = 1 if self.steps < 20 else 5 if self.steps < 100 else 10
        number = round(self.steps / step) * step
        return f"about {number:,} {'step' if number == 1 else 'steps'}"


def soonest(
    steps: NDArray[np.int64],
    values: NDArray[np.float64],
    largest: NDArray[np.float64],
    peak: Callable[[int], float] = lambda _: 0.0,
) -> Forecast | None:
    """The first overflow to come, None if none is in sight.

    Args:
        steps: int64[n], ascending.
        values: float64[m, n], norms (or single numbers) of m tensors; NaN and infinity where there is none.
        largest: float64[m], the largest number of each one's dtype, NaN to leave it out.
        peak: log2 of the ratio of the largest element of a row to its norm, 0 where that is not known.
    """
    steps, values = steps[-WINDOW:], np.abs(values[:, -WINDOW:])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        limits = np.log2(largest)
        rows = np.flatnonzero(np.nanmax(np.where(np.isfinite(values), values, 0), axis=1, initial=0) >= largest**NEAR)
        octaves = np.log2(values[rows])
    octaves[~np.isfinite(octaves)] = np.nan
    found: list[Forecast] = []
    for row in rows[_urgent(steps, octaves, limits[rows])][:MOST]:
        above = peak(int(row))
        growth = doubling(steps, values[row])
        if growth is None or growth.last_step < steps[-1] - FRESH or growth.level + above < NEAR * limits[row]:
            continue
        left = float(limits[row] - above - growth.level) / growth.rate
        if left <= AHEAD * (growth.last_step - growth.first_step):
            found.append(Forecast(int(row), growth, left))
    return min(found, key=lambda forecast: forecast.step, default=None)


def _urgent(steps: NDArray[np.int64], octaves: NDArray[np.float64], limits: NDArray[np.float64]) -> NDArray[np.intp]:
    """Rows that rose enough, those first that the pace of the newest steps takes to the limit soonest."""
    known = ~np.isnan(octaves)
    if not octaves.size:
        return np.zeros(0, np.intp)
    latest = octaves.shape[1] - 1 - np.argmax(known[:, ::-1], axis=1)
    now = np.take_along_axis(octaves, latest[:, None], axis=1)[:, 0]
    lowest = np.nanmin(np.where(known, octaves, np.inf), axis=1)
    before = np.nanmin(np.where(known & (steps >= steps[-1] - PACE), octaves, np.inf), axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.where(now > before, (limits - now) / (now - before), np.inf)
    order = np.argsort(left, kind="stable")
    highest = np.nanmax(np.where(known, octaves, -np.inf), axis=1)
    risen = (now - lowest >= FEWEST_OCTAVES / 2) & (now >= highest - 1)  # noise may hide some of it
    return order[risen[order]]
