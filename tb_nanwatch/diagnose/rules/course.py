"""How the loss went: whether it came down at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_nanwatch.store.run import Run

FEWEST: Final = 20  # values
PARTS: Final = 10  # the run in as many parts
PROGRESS: Final = 0.02  # of the loss's beginning, at least
CERTAIN: Final = 3.0  # standard errors
BETTER: Final = 0.1  # of the very first loss


@dataclass(frozen=True)
class Extent:
    """The very first value of a loss, computed before any update; its highest; the lowest mean of any tenth of it."""

    name: str
    first: float
    highest: float
    lowest: float

    @property
    def untrained(self) -> bool:
        """Whether no tenth was better than the beginning."""
        return self.lowest > self.first - BETTER * abs(self.first)

    def rose(self, times: float) -> bool:
        """Whether it rose to so many times the first value."""
        return self.highest >= self.first + (times - 1) * abs(self.first)


def stuck(run: Run, last: int) -> bool:
    """Whether the loss (the first that has enough values up to `last`) ended where it began, as far as noise lets see.

    Its last quarter is compared with its first tenth; False where too little is known.
    """
    for info in run.kind("loss"):
        values = run.series(info.tag, "value", run.first_step, last).values
        values = values[np.isfinite(values)]
        if len(values) < FEWEST:
            continue
        begin, end = values[: len(values) // 10], values[-(len(values) // 4) :]
        error = float(np.hypot(values.std() / np.sqrt(len(begin)), values.std() / np.sqrt(len(end))))
        fallen = float(begin.mean() - end.mean())
        return fallen < max(PROGRESS * abs(float(begin.mean())), CERTAIN * error)
    return False


def extent(run: Run, last: int) -> Extent | None:
    """Of a loss that was recorded from the first step on; None where there is none such."""
    for info in run.kind("loss"):
        series = run.series(info.tag, "value", run.first_step, last)
        values = series.values[np.isfinite(series.values)]
        if len(values) < FEWEST or series.steps[0] != run.first_step or not np.isfinite(series.values[0]):
            continue
        lowest = min(float(part.mean()) for part in np.array_split(values[1:], PARTS))
        return Extent(info.name, float(values[0]), float(values.max()), lowest)
    return None
