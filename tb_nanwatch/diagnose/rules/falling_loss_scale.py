"""A dynamic loss scale that is halved again and again and never doubled: gradients overflow at every size.

A healthy scale is halved until the first gradients fit, then doubled after every 2,000 good steps and halved once when
that was too much (Keras; DeepSpeed after 1,000). So the search at the beginning is left out, and five halvings without
a doubling, in three places at least, are a fall. DeepSpeed ends training at a scale of 1, Keras goes on below it: a
scale that fell below 1 has nothing left to give.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules.activations import FEWEST_STEPS, last_step
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.store.run import Run

TAG: Final = "scalar/loss_scale"
LOOKED_AT: Final = 20_000  # steps, the newest
SETTLED: Final = 20  # steps in a row without a change end the search at the beginning
HALVINGS: Final = 5
PLACES: Final = 3
APART: Final = 5  # steps between two places
RECENT: Final = 2_000  # steps within which a healthy scale would have been doubled
FLOOR: Final = 1.0


def falling_loss_scale(run: Run) -> Iterable[Finding]:
    """At most one finding."""
    last = last_step(run)
    if last - run.first_step + 1 < FEWEST_STEPS:
        return
    begin = max(run.first_step, last - LOOKED_AT + 1)
    line = run.series(TAG, "value", begin, last)
    known = np.isfinite(line.values) & (line.values > 0)
    steps, values = line.steps[known], line.values[known]
    if len(values) < FEWEST_STEPS:
        return
    start = _last_rise(values)
    if start == 0 and begin == run.first_step:
        start = _settled(steps, values)
    falls = start + 1 + np.flatnonzero(np.diff(values[start:]) < 0)
    if not len(falls) or last - steps[falls[-1]] > RECENT:
        return
    halvings = float(np.log2(values[start] / values[-1]))
    places = 1 + int(np.sum(np.diff(steps[falls]) >= APART))
    exhausted = values[-1] < FLOOR <= values[start]
    if not exhausted and (halvings < HALVINGS or places < PLACES):
        return
    first = int(steps[falls[0]])
    evidence = [
        (
            f"the loss scale fell from {words.magnitude(float(values[start]))} to {words.magnitude(float(values[-1]))} "
            f"between step {first:,} and step {int(steps[falls[-1]]):,} and was never doubled"
        ),
        f"each of the {len(falls):,} halvings is a step whose gradients overflowed and whose update was skipped",
    ]
    if exhausted:
        evidence.append("below 1 it no longer guards small gradients from vanishing: even unscaled ones overflow")
    remedies = ("mixed_precision_policy", "clip_gradients", "lower_learning_rate")
    yield Finding("falling_loss_scale", "warning", "loss_scale", first, last, tuple(evidence), remedies)


def _last_rise(values: NDArray[np.float64]) -> int:
    """Index of the value after the last doubling, 0 if there was none."""
    rises = np.flatnonzero(np.diff(values) > 0)
    return int(rises[-1]) + 1 if len(rises) else 0


def _settled(steps: NDArray[np.int64], values: NDArray[np.float64]) -> int:
    """Index of the first value that stayed for SETTLED steps; the last index if none did."""
    starts = np.flatnonzero(np.diff(values, prepend=np.nan) != 0)
    ends = np.append(steps[starts[1:]], steps[-1] + 1)
    stayed = np.flatnonzero(ends - steps[starts] >= SETTLED)
    return int(starts[stayed[0]]) if len(stayed) else len(values) - 1
