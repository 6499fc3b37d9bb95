"""Batches unlike the first ones, and a loss that jumped with them: outliers, or data that changed its scale under way.

AWS warns of images whose mean is off by 0.2, UMLAUT of inputs outside [-1, 1]; plenty of healthy data is. Here a batch
must have a hundred times the norm that was typical of the first ones, and the loss must have jumped tenfold. Columns
that are extreme from the first batch on are `extreme_column`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules.activations import FEWEST_STEPS, last_step
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.store.run import Run

TIMES: Final = 100.0  # the median norm of the first batches; heavy-tailed data stays below
LOSS_TIMES: Final = 10.0  # the median loss of the steps before
BINS: Final = 256
WINDOW: Final = 64
LASTING: Final = 0.5  # of the batches from the first large one on: no outliers, but other data


@dataclass(frozen=True)
class Outlier:
    """An input that was `times` its typical norm at its worst; the steps of its first and its worst large batch."""

    info: TensorInfo
    times: float
    first: int
    worst: int
    lasting: bool


def input_extreme_scale(run: Run) -> Iterable[Finding]:
    """At most one finding, on the input that stands out most."""
    last = last_step(run)
    if last - run.first_step + 1 < FEWEST_STEPS:
        return
    outliers = [found for info in run.kind("input") if (found := _outlier(run, info, last)) is not None]
    if not outliers:
        return
    found = max(outliers, key=lambda outlier: outlier.times)
    jump, step = max((_loss_jump(run, step), step) for step in {found.first, found.worst})
    if jump < LOSS_TIMES:
        return
    what = words.place("input", found.info.name)
    first, until = (found.first, last) if found.lasting else (step, step)
    times = f"{words.magnitude(found.times)} times"
    if found.lasting:
        seen = f"from step {first:,} on most batches of {what} are on another scale: {times} the first ones at worst"
    else:
        seen = f"at step {step:,} {what} was {times} the median of the first batches"
    evidence = (seen, f"the loss of step {step:,} was {words.magnitude(jump)} times that of the steps before")
    remedies = ("clean_input", "clip_gradients")
    yield Finding("input_extreme_scale", "warning", found.info.name, first, until, evidence, remedies, found.info.kind)


def _outlier(run: Run, info: TensorInfo, last: int) -> Outlier | None:
    line = run.binned(info.tag, "norm", run.first_step, last, BINS)
    known = np.isfinite(line.high) & (line.high > 0)
    if known.sum() < FEWEST_STEPS:
        return None
    begin = run.series(info.tag, "norm", run.first_step, min(run.first_step + FEWEST_STEPS - 1, last)).values
    begin = begin[np.isfinite(begin)]
    typical = float(np.median(begin)) if len(begin) else 0.0
    high = np.where(known, line.high, 0.0)
    large = np.flatnonzero(high >= TIMES * typical)
    if typical <= 0 or not len(large):
        return None
    times = float(high.max()) / typical
    worst = _step(run, info, line.step, line.steps_per_bin, int(np.argmax(high)), high.max(), last)
    first = _step(run, info, line.step, line.steps_per_bin, int(large[0]), TIMES * typical, last)
    lasting = bool(np.mean(line.low[large[0] :][known[large[0] :]] >= TIMES * typical) > LASTING)
    return Outlier(info, times, first, worst, lasting and len(high) - large[0] >= 3)


def _step(
    run: Run, info: TensorInfo, starts: NDArray[np.int64], width: int, place: int, least: float, last: int
) -> int:
    """First step of a bin at which the norm is at least `least`."""
    start = int(starts[place])
    series = run.series(info.tag, "norm", start, min(start + max(width, 1) - 1, last))
    at = np.flatnonzero(series.values >= least * (1 - 1e-9))
    return int(series.steps[at[0]]) if len(at) else start


def _loss_jump(run: Run, step: int) -> float:
    jumps = []
    for info in run.kind("loss"):
        series = run.series(info.tag, "value", max(0, step - WINDOW), step)
        before = np.abs(series.values[np.isfinite(series.values) & (series.steps < step)])
        now = np.abs(series.values[series.steps == step])
        if len(before) and len(now) and np.isfinite(now[0]) and np.median(before) > 0:
            jumps.append(float(now[0] / np.median(before)))
    return max(jumps, default=0.0)
