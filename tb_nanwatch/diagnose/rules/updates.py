"""How far each step moved the weights, relative to their norm, as the rules on updates look at it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.diagnose.rules import depth
from tb_nanwatch.diagnose.rules.beginning import at_beginning, constant
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.store.run import Run

FEWEST_MEASURED: Final = 5  # full steps
LOOKED_AT: Final = 20_000  # steps, the newest


@dataclass(frozen=True)
class Moves:
    """Of one matrix: update over weight float64[n] at full steps, and its typical gradient over its weight.

    first: the ratio of step 0, NaN where that is not the beginning of training. from_zeros: the matrix began as zeros,
    so that the first updates are all that it has.
    """

    info: TensorInfo
    ratios: NDArray[np.float64]
    first: float
    asked: float
    from_zeros: bool = False

    @property
    def typical(self) -> float:
        """The median ratio."""
        return float(np.median(self.ratios))


@functools.lru_cache(maxsize=4)  # several rules ask the same of one run
def moves(run: Run, last: int, fewest: int = FEWEST_MEASURED) -> tuple[Moves, ...]:
    """Of the matrices whose updates were measured often enough, in forward order.

    Only steps count that made a gradient for the matrix: networks that take turns stand still in between.
    """
    found = []
    beginning = at_beginning(run)
    for info in depth.thinned(depth.matrices(run.kind("gradient"))):
        newest = ratios_of(run, info, max(run.first_step, last - LOOKED_AT + 1), last)
        ratios = np.array(list(newest.values()))
        if len(ratios) < fewest:
            continue
        first = ratios_of(run, info, 0, 0).get(0, np.nan) if beginning else np.nan
        found.append(Moves(info, ratios, first, _asked(run, info, last), beginning and constant(run, info) == 0))
    return tuple(found)


def ratios_of(run: Run, info: TensorInfo, first: int, last: int) -> dict[int, float]:
    """Step to update over weight, of the full steps that made a gradient for the matrix."""
    series = run.series(f"update/{info.name}", "update_ratio", first, last)
    with_gradient = np.isin(series.steps, run.series(info.tag, "norm", first, last).steps)
    known = np.isfinite(series.values) & with_gradient
    return dict(zip(series.steps[known].tolist(), series.values[known].tolist(), strict=True))


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
