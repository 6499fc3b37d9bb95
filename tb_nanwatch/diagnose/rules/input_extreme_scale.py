"""One batch unlike all others, and a loss that jumped with it: an outlier in the data that training survived."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules.activations import FEWEST_STEPS, last_step
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.store.run import Run

TIMES: Final = 100.0  # the median norm of the batches; heavy-tailed data stays below
LOSS_TIMES: Final = 10.0  # the median loss of the steps before
BINS: Final = 256
WINDOW: Final = 64


def input_extreme_scale(run: Run) -> Iterable[Finding]:
    """At most one finding, on the batch that stands out most."""
    last = last_step(run)
    if last - run.first_step + 1 < FEWEST_STEPS:
        return
    worst = max((_outlier(run, info, last) for info in run.kind("input")), key=lambda o: o[1], default=None)
    if worst is None or worst[1] < TIMES:
        return
    info, times, step = worst
    jump = _loss_jump(run, step)
    if jump < LOSS_TIMES:
        return
    evidence = (
        f"at step {step:,} {words.place('input', info.name)} was {words.magnitude(times)} times the median batch",
        f"the loss of that step was {words.magnitude(jump)} times that of the steps before",
    )
    yield Finding("input_extreme_scale", "warning", info.name, step, step, evidence, ("clean_input", "clip_gradients"))


def _outlier(run: Run, info: TensorInfo, last: int) -> tuple[TensorInfo, float, int]:
    """The step with the largest norm, and how many times the median that is."""
    line = run.binned(info.tag, "norm", run.first_step, last, BINS)
    known = np.isfinite(line.high) & (line.high > 0)
    if known.sum() < FEWEST_STEPS:
        return info, 0.0, 0
    median = float(np.median(line.low[known]))
    top = int(np.argmax(np.where(known, line.high, 0.0)))
    if median <= 0 or line.high[top] < TIMES * median:
        return info, 0.0, 0
    start = int(line.step[top])
    series = run.series(info.tag, "norm", start, min(start + max(line.steps_per_bin, 1) - 1, last))
    if not len(series.steps):
        return info, 0.0, 0
    return info, float(line.high[top]) / median, int(series.steps[np.nanargmax(series.values)])


def _loss_jump(run: Run, step: int) -> float:
    jumps = []
    for info in run.kind("loss"):
        series = run.series(info.tag, "value", max(0, step - WINDOW), step)
        before = np.abs(series.values[np.isfinite(series.values) & (series.steps < step)])
        now = np.abs(series.values[series.steps == step])
        if len(before) and len(now) and np.isfinite(now[0]) and np.median(before) > 0:
            jumps.append(float(now[0] / np.median(before)))
    return max(jumps, default=0.0)
