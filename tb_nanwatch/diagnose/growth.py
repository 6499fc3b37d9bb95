"""Which numbers grew, and how steadily, up to the last step before an incident."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.window import norms, total_norm
from tb_nanwatch.store.run import Run

WINDOW: Final = 64  # steps looked at before an incident
FEWEST_POINTS: Final = 3  # two steps up are the least that is a direction
STEADY_SHARE: Final = 0.75  # of the steps of a run-up go up
NOTABLE: Final = 10.0  # smaller factors are how training looks on any day
MOST_PER_KIND: Final = 3


@dataclass(frozen=True)
class Trend:
    """The run-up of one magnitude: from its lowest point in the window to its last value."""

    label: str
    kind: str
    dtype: str
    first_step: int
    last_step: int
    first: float
    last: float
    steady: bool

    @property
    def factor(self) -> float:
        """How many times larger the last value is than the first."""
        return self.last / self.first


def run_up(steps: NDArray[np.int64], values: NDArray[np.float64]) -> tuple[int, int, float, float, bool] | None:
    """First and last step, first and last magnitude and steadiness of the rise that ends with the last value.

    Args:
        steps: int64[n], ascending.
        values: float64[n]; entries that are zero or not finite are passed over.

    Returns:
        None when fewer than FEWEST_POINTS make up the rise.
    """
    usable = np.isfinite(values) & (values != 0)
    steps, values = steps[usable], np.abs(values[usable])
    if len(values) < FEWEST_POINTS:
        return None
    start = len(values) - 1 - int(np.argmin(values[::-1]))  # the latest of equal minima
    rise = values[start:]
    if len(rise) < FEWEST_POINTS:
        return None
    steady = float(np.mean(np.diff(rise) > 0)) >= STEADY_SHARE
    return int(steps[start]), int(steps[-1]), float(rise[0]), float(rise[-1]), steady


def trends(run: Run, first_bad: int) -> tuple[Trend, ...]:
    """Everything that rose at least NOTABLE-fold in the WINDOW steps before `first_bad`, the largest factor first."""
    first, last = max(0, first_bad - WINDOW), first_bad - 1
    if last < first:
        return ()
    found: list[Trend] = []
    for info in run.kind("loss"):
        series = run.series(info.tag, "value", first, last)
        _add(found, words.place("loss", info.name), "loss", info.dtype, series.steps, series.values)
    steps = np.arange(first, last + 1, dtype=np.int64)
    for kind, noun in (("gradient", "gradients"), ("weight", "weights")):
        infos = run.kind(kind)
        if not infos:
            continue
        plane = norms(run, kind, first, last)
        for row in _fastest(plane):
            info = infos[row]
            _add(found, words.place(kind, info.name, info.layer), kind, info.dtype, steps, plane[row])
        if len(infos) > 1:
            _add(found, f"all {noun} together", kind, infos[0].dtype, steps, total_norm(plane))
    return tuple(sorted(found, key=lambda trend: -trend.factor))


def _add(
    found: list[Trend], label: str, kind: str, dtype: str, steps: NDArray[np.int64], values: NDArray[np.float64]
) -> None:
    rise = run_up(steps, values)
    if rise is not None and rise[3] >= NOTABLE * rise[2]:
        found.append(Trend(label, kind, dtype, *rise))


def _fastest(plane: NDArray[np.float64]) -> list[int]:
    """Rows with the largest ratio of last to smallest value; those below NOTABLE left out."""
    usable = np.isfinite(plane) & (plane > 0)
    lowest = np.where(usable, plane, np.inf).min(axis=1)
    latest = plane.shape[1] - 1 - np.argmax(usable[:, ::-1], axis=1)
    value = np.take_along_axis(plane, latest[:, None], axis=1)[:, 0]
    ratio = np.where(usable.any(axis=1), value / np.where(np.isfinite(lowest), lowest, 1.0), 0.0)
    order = np.argsort(-ratio, kind="stable")[:MOST_PER_KIND]
    return [int(row) for row in order if ratio[row] >= NOTABLE]
