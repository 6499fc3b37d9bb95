"""How the loss went: where it began, where it ended, and how much it shook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_nanwatch.store.run import Run

FEWEST: Final = 20  # values
BEGIN: Final = 5  # steps that stand for the beginning
PARTS: Final = 10  # the run in as many parts
PROGRESS: Final = 0.02  # of the loss's beginning, at least


@dataclass(frozen=True)
class Course:
    """Means of the first steps and of the last tenth; the lowest mean of any tenth; the typical change from step to
    step in the second half, over its mean. All NaN where too little is known.
    """

    begin: float = float("nan")
    end: float = float("nan")
    lowest: float = float("nan")
    shake: float = float("nan")

    @property
    def known(self) -> bool:
        return bool(np.isfinite([self.begin, self.end, self.lowest]).all())

    @property
    def stuck(self) -> bool:
        """Whether no part of the run was noticeably better than its beginning."""
        return self.known and self.lowest > self.begin - PROGRESS * abs(self.begin)


def course(run: Run, last: int) -> Course:
    """Of the first loss that has enough values up to `last`."""
    for info in run.kind("loss"):
        values = run.series(info.tag, "value", run.first_step, last).values
        values = values[np.isfinite(values)]
        if len(values) >= FEWEST:
            parts = [part.mean() for part in np.array_split(values, PARTS)]
            half = values[len(values) // 2 :]
            scale = abs(float(half.mean()))
            shake = float(np.median(np.abs(np.diff(half)))) / scale if scale else float("nan")
            return Course(float(values[:BEGIN].mean()), float(parts[-1]), float(min(parts[1:])), shake)
    return Course()
