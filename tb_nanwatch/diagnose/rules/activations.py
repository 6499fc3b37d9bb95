"""The outputs of layers at a few stretches of a run, as the rules on activations look at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.store.run import Run

FULL_STEPS: Final = 10  # with all statistics, looked at per stretch
FEWEST_STEPS: Final = 20  # of a run, before any of it counts as a habit
MOST_LAYERS: Final = 64  # evenly over the depth of a larger network


@dataclass(frozen=True)
class Stretch:
    """Statistics of one output at the full steps of one stretch, float64[n] each.

    mean_square is NaN where the size of the tensor is not known.
    """

    steps: NDArray[np.int64]
    mean_square: NDArray[np.float64]
    max_abs: NDArray[np.float64]
    mean: NDArray[np.float64]
    zero_share: NDArray[np.float64]


def last_step(run: Run) -> int:
    """The last step that says something of the run's own habits: what follows an incident does not."""
    return run.incidents[0].first_step - 1 if run.incidents else run.last_step


def layers(run: Run) -> list[TensorInfo]:
    """The outputs to look at, in forward order; of a layer that is called several times the first."""
    infos = [info for info in run.kind("activation") if ":" not in info.layer]
    if len(infos) <= MOST_LAYERS:
        return infos
    return [infos[i] for i in np.linspace(0, len(infos) - 1, MOST_LAYERS).round().astype(int)]


def stretches(run: Run, last: int) -> list[tuple[int, int]]:
    """First and last step of the beginning, the middle and the end of a run up to `last`; one if it is short."""
    length = FULL_STEPS * max(run.header.every, 1)
    first = run.first_step
    if last - first + 1 <= 3 * length:
        return [(first, last)]
    middle = (first + last - length) // 2
    return [(first, first + length - 1), (middle, middle + length - 1), (last - length + 1, last)]


def stretch(run: Run, info: TensorInfo, first: int, last: int) -> Stretch:
    """Statistics of `info` at the steps from `first` to `last` at which all of them were measured."""
    stats = {stat: run.series(info.tag, stat, first, last) for stat in ("norm", "max_abs", "mean", "zero_share")}
    steps = stats["norm"].steps
    for series in stats.values():
        steps = np.intersect1d(steps, series.steps)
    values = {stat: s.values[np.isin(s.steps, steps)] for stat, s in stats.items()}
    size = _size(info.shape)
    return Stretch(
        steps=steps,
        mean_square=np.square(values["norm"]) / size if size else np.full(len(steps), np.nan),
        max_abs=values["max_abs"],
        mean=values["mean"],
        zero_share=values["zero_share"],
    )


def _size(shape: Sequence[int] | None) -> int:
    """Number of elements, 0 where a dimension is not known."""
    if shape is None or any(dim <= 0 for dim in shape):
        return 0
    return int(np.prod(shape, dtype=np.int64))
