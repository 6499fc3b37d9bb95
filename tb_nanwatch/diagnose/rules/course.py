"""How the loss went: whether it came down at all."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_nanwatch.store.run import Run

FEWEST: Final = 20  # values
PARTS: Final = 10  # the run in as many parts
PROGRESS: Final = 0.02  # of the loss's beginning, at least
CERTAIN: Final = 3.0  # standard errors
BETTER: Final = 0.1  # of the very first loss


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


def untrained(run: Run, last: int) -> tuple[str, float, float] | None:
    """(name, first value, highest value) of a loss of which no tenth was better than its very first value.

    That value was computed before any update. None where there is none such, or the first step was not recorded.
    """
    for info in run.kind("loss"):
        series = run.series(info.tag, "value", run.first_step, last)
        values = series.values[np.isfinite(series.values)]
        if len(values) < FEWEST or series.steps[0] != run.first_step or not np.isfinite(series.values[0]):
            continue
        first = float(values[0])
        lowest = min(float(part.mean()) for part in np.array_split(values[1:], PARTS))
        return (info.name, first, float(values.max())) if lowest > first - BETTER * abs(first) else None
    return None
