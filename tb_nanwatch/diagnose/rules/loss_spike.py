"""A loss that jumped far above anything before it and came back: training survived, and may not the next time.

Megatron calls a loss spiky from ten times the largest of its first hundred steps on, OLMo from six standard
deviations of the last 128, losslint from ten times a median. Losses of small batches have long tails, so that a
well-fitted network shows such jumps at every hard sample, gone with the next batch: the spike must also reach the loss
that the run began with, and the steps beside it must stand out too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules.activations import last_step
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.diagnose.rules.input_extreme_scale import input_extreme_scale
from tb_nanwatch.diagnose.window import norms, total_norm
from tb_nanwatch.store.run import Run

TIMES: Final = 10.0  # the largest loss of the steps before
WINDOW: Final = 128  # steps before, and steps in which it must come back
FEWEST_BEFORE: Final = 32
LASTING: Final = 2  # steps at half that height, of those
BESIDE: Final = 2  # steps from the peak
RAMP: Final = 8  # steps that a spike may take to its peak
CALM: Final = 8  # steps in a row at the old height are a recovery
CALM_TIMES: Final = 2.0
BEGINNING: Final = 10  # steps
LOOKED_AT: Final = 100_000  # steps, the newest
CLOSELY: Final = 64  # peaks that are looked at
NOTABLE: Final = 3.0  # gradients that jumped with it


@dataclass(frozen=True)
class Spike:
    """Step of the peak, step from which it is over, its height and the largest loss before it."""

    step: int
    over: int
    height: float
    before: float


def loss_spike(run: Run) -> Iterable[Finding]:
    """At most one finding for each loss, on its largest spike."""
    last = last_step(run)
    for info in run.kind("loss"):
        line = run.series(info.tag, "value", max(run.first_step, last - LOOKED_AT + 1), last)
        known = np.isfinite(line.values)
        first = np.abs(run.series(info.tag, "value", run.first_step, run.first_step + BEGINNING - 1).values)
        if not np.isfinite(first).any():
            continue
        spikes = _spikes(line.steps[known], np.abs(line.values[known]), float(np.nanmedian(first)))
        by_data = {finding.first_step for finding in input_extreme_scale(run)} if spikes else set()
        spikes = [spike for spike in spikes if not any(spike.step - RAMP <= step <= spike.step for step in by_data)]
        if not spikes:
            continue
        top = max(spikes, key=lambda spike: spike.height / spike.before)
        evidence = [
            (
                f"at step {top.step:,} {words.place('loss', info.name)} was {words.magnitude(top.height)}, "
                f"{words.magnitude(top.height / top.before)} times the largest of the steps before, and it was back at "
                f"step {top.over:,}"
            )
        ]
        jump = _gradient_jump(run, top.step)
        if jump >= NOTABLE:
            evidence.append(f"the gradients were up to {words.magnitude(jump)} times what they usually were before")
        if len(spikes) > 1:
            evidence.append(f"it spiked {len(spikes):,} times, the last one at step {spikes[-1].step:,}")
        begin, end = min(s.step for s in spikes), max(s.over for s in spikes)
        remedies = ("clip_gradients", "lower_learning_rate", "clean_input")
        yield Finding("loss_spike", "warning", info.name, begin, end, tuple(evidence), remedies, info.kind)


def _spikes(steps: NDArray[np.int64], values: NDArray[np.float64], start: float) -> list[Spike]:
    """Spikes that are over, in order. steps int64[n]; values float64[n], finite."""
    found: list[Spike] = []
    if len(values) < FEWEST_BEFORE + RAMP or start <= 0:
        return found
    usual = float(np.median(values))
    high = np.flatnonzero(values >= max(start, TIMES * usual))
    for peak in sorted(high[np.argsort(-values[high], kind="stable")][:CLOSELY]):
        before = values[max(0, peak - RAMP - WINDOW) : max(0, peak - RAMP)]
        if len(before) < FEWEST_BEFORE or values[peak] < TIMES * before.max():
            continue
        beside = values[peak - BESIDE : peak + BESIDE + 1] >= TIMES / 2 * before.max()
        if beside.sum() < LASTING:
            continue
        calm = values[peak + 1 : peak + 1 + WINDOW] <= CALM_TIMES * before.max()
        if len(calm) < CALM:
            continue
        rest = np.flatnonzero(np.convolve(calm, np.ones(CALM), "valid") == CALM)
        if not len(rest):
            continue
        spike = Spike(int(steps[peak]), int(steps[peak + 1 + rest[0]]), float(values[peak]), float(before.max()))
        if found and spike.over == found[-1].over:  # the same spike: its highest step stands for it
            found[-1] = max(found[-1], spike, key=lambda s: s.height)
        else:
            found.append(spike)
    return found


def _gradient_jump(run: Run, step: int) -> float:
    """Largest norm of all gradients within the spike, in multiples of their median before it; 0 if not known."""
    first = max(run.first_step, step - RAMP - WINDOW)
    total = total_norm(norms(run, "gradient", first, step)) if run.kind("gradient") else np.zeros(0)
    before, within = total[: max(0, len(total) - RAMP - 1)], total[-RAMP - 1 :]
    before, within = before[np.isfinite(before) & (before > 0)], within[np.isfinite(within)]
    return float(within.max() / np.median(before)) if len(before) and len(within) else 0.0
