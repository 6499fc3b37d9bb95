"""How far each step moved the weights, relative to their norm, as the rules on updates look at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.diagnose.rules import depth
from tb_nanwatch.diagnose.rules.beginning import at_beginning, constant
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.store.run import Run

FEWEST_MEASURED: Final = 5  # full steps


@dataclass(frozen=True)
class Moves:
    """Of one matrix: update over weight float64[n] at full steps, and its typical gradient over its weight.

    first: the ratio of step 0, NaN where that is not the beginning of training or the matrix began as zeros.
    """

    info: TensorInfo
    ratios: NDArray[np.float64]
    first: float
    asked: float

    @property
    def typical(self) -> float:
        """The median ratio."""
        return float(np.median(self.ratios))


def moves(run: Run, last: int) -> list[Moves]:
    """Of the matrices that receive a gradient and whose updates were measured often enough, in forward order."""
    found = []
    beginning = at_beginning(run)
    for info in depth.thinned(depth.matrices(run.kind("gradient"))):
        series = run.series(f"update/{info.name}", "update_ratio", run.first_step, last)
        known = np.isfinite(series.values)
        ratios = series.values[known]
        if len(ratios) < FEWEST_MEASURED:
            continue
        first = float(ratios[0]) if beginning and series.steps[known][0] == 0 and constant(run, info) != 0 else np.nan
        found.append(Moves(info, ratios, first, _asked(run, info, last)))
    return found


def learning_rate(run: Run, last: int) -> NDArray[np.float64]:
    """float64[n] where it was recorded, in the order of steps."""
    values = run.series("scalar/learning_rate", "value", run.first_step, last).values
    return values[np.isfinite(values)]


def _asked(run: Run, info: TensorInfo, last: int) -> float:
    """Median of the gradient's norm over the weight's."""
    gradient = run.binned(info.tag, "norm", run.first_step, last, depth.BINS).high
    weight = run.binned(f"weight/{info.name}", "norm", run.first_step, last, depth.BINS).high
    gradient, weight = gradient[np.isfinite(gradient)], weight[np.isfinite(weight)]
    if not len(gradient) or not len(weight) or np.median(weight) == 0:
        return float("nan")
    return float(np.median(gradient) / np.median(weight))
