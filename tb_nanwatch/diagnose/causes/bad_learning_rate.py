"""A learning rate so high that every update overshoots: the weights are thrown farther at each step."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.causes.growth_overflow import PHASES, overgrown, remedies, said, sureness
from tb_nanwatch.diagnose.operation import EXPONENTIALS

WEIGHTS_FACTOR: Final = 100.0  # over the run-up; weights that train well hardly double
PER_STEP: Final = 1.05  # slower growth than that is drift, and no feedback from update to update
OVERSHOT: Final = 2.0  # update over weights: healthy training is at 1e-3, the first step from tiny weights near 1
EARLY: Final = 3  # steps with too few updates to measure one
ALL_OF_IT: Final = (0.9, 1.1)  # update over weights after it, where nothing is left of the weights before
WINDOW: Final = 16  # steps before the incident in which an update counts


def bad_learning_rate(case: Case) -> Cause | None:
    """Weights that multiply step by step before an overflow; or updates larger than the weights that they change."""
    if case.incident.origin.phase not in PHASES:
        return None
    rate = learning_rate(case)
    at = (f"the learning rate was {words.magnitude(rate)}",) if rate else ()
    grown = overgrown(case)
    weights = [
        t
        for t in case.trends or ()
        if t.kind == "weight" and t.steady and t.factor >= WEIGHTS_FACTOR
        and t.factor ** (1 / max(t.last_step - t.first_step, 1)) >= PER_STEP
    ]  # fmt: skip
    if grown and weights:
        each = weights[0].factor ** (1 / max(weights[0].last_step - weights[0].first_step, 1))
        feedback = f"{weights[0].label} multiplied by about {words.magnitude(each)} at every step"
        return Cause(
            "bad_learning_rate", min(sureness(grown) + 0.03, 0.95), (feedback, *said(grown)[:2], *at), remedies(case)
        )
    if case.op.known and not case.op.overflowed:
        return None
    ratio = _overshoot(case)
    if ratio >= OVERSHOT:
        seen = (
            f"an update in the steps before was {words.magnitude(ratio)} times as large as the weights that it changed"
        )
    else:
        thrown = _thrown_at_once(case, rate)
        if not thrown:
            return None
        seen = f"the update of the step before, learning rate times gradient, is all that {thrown} consists of now"
    sure = 0.6 if case.op.outgrown else 0.5 if case.op.name in EXPONENTIALS else 0.3
    return Cause("bad_learning_rate", sure, (seen, *at), remedies(case))


def learning_rate(case: Case) -> float:
    """The learning rate at the last step before the incident that recorded one; 0 where none did."""
    values = case.run.series("scalar/learning_rate", "value", 0, max(case.incident.first_step, 0)).values
    values = values[np.isfinite(values)]
    return float(values[-1]) if len(values) else 0.0


def _overshoot(case: Case) -> float:
    """Largest ratio of update to weight norm in the steps before the incident; 0 where none was measured."""
    last = case.incident.first_step - 1
    largest = 0.0
    for info in case.run.kind("update"):
        if last < 0 or (info.shape is not None and len(info.shape) < 2):
            continue  # biases start at zero: any update is infinitely larger
        values = case.run.series(info.tag, "update_ratio", max(0, last - WINDOW), last).values
        largest = max(largest, float(values[np.isfinite(values)].max(initial=0.0)))
    return largest


def _thrown_at_once(case: Case, rate: float) -> str:
    """The weights that plain gradient descent replaced in one step, before any update could be measured; "" if none.

    Other optimizers scale the gradient, and then learning rate times gradient is nowhere near the weights.
    """
    last = case.incident.first_step - 1
    if not 0 <= last < EARLY or not rate:
        return ""
    for info in case.run.kind("gradient"):
        if info.shape is not None and len(info.shape) < 2:
            continue
        gradient = case.run.series(info.tag, "norm", last, last).values
        weight = case.run.series(f"weight/{info.name}", "norm", last, last).values
        if (
            len(gradient)
            and len(weight)
            and weight[0] > 0
            and ALL_OF_IT[0] <= rate * gradient[0] / weight[0] <= ALL_OF_IT[1]
        ):
            return words.place("weight", info.name, info.layer)
    return ""
