"""A matrix that moved, and that no step changes any more since its gradient was huge once, though it asks as before.

Optimizers that divide by the root of averaged squares (RMSprop, Adam and their kind) keep such a gradient for long, and
for ever where its square is beyond the type's largest number: then they divide by infinity, and training ends without
a word. Updates of nothing have other reasons, too: a rate that has decayed, gradients that are being accumulated,
layers that were frozen, numbers of few bits. So the huge gradient must have been seen, the rate must be what it was,
and the matrix must have moved before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules.activations import FEWEST_STEPS, last_step
from tb_nanwatch.diagnose.rules.depth import BINS
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.diagnose.rules.updates import LOOKED_AT, learning_rate, moves, ratios_of
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.stats.dtypes import largest
from tb_nanwatch.store.run import Run

NOTHING: Final = 1e-8  # update over weight
MOVED: Final = 1e-6
FEWEST: Final = 5  # updates measured since
ASKED: Final = 1e-3  # gradient over weight
HUGE: Final = 1e4  # times what the gradient is since
DECAYED: Final = 0.01  # of the highest learning rate
WIDE: Final = ("float32", "float64")  # types in which small updates do not round away


@dataclass(frozen=True)
class Stall:
    """Of one matrix: the first still step, the huge gradient and its step, and what is typical since, also over its
    weight.
    """

    info: TensorInfo
    since: int
    huge: float
    at: int
    typical: float
    asked: float

    @property
    def beyond(self) -> bool:
        """Whether the square of some element is beyond the type's largest number."""
        return self.huge / np.sqrt(np.prod(self.info.shape or (1,))) >= np.sqrt(largest(self.info.dtype))


def stalled(run: Run) -> Iterable[Finding]:
    """At most one finding, on the first matrix that stands still."""
    last = last_step(run)
    if last - run.first_step + 1 < FEWEST_STEPS:
        return
    found = [stall for m in moves(run, last) if m.info.dtype in WIDE and (stall := _stall(run, m.info, last))]
    if not found:
        return
    first = found[0]
    name = words.printable(first.info.name)
    keeps = "an optimizer that divides by the root of averaged squares keeps that for long"
    if first.beyond:
        keeps = f"its square is beyond {first.info.dtype}, and an average of squares that is infinite stays so"
    asks, huge, typical = (words.magnitude(value) for value in (first.asked, first.huge, first.typical))
    evidence = [
        f"no step measured since step {first.since:,} changed {name}, whose gradient is {asks} of its norm",
        f"the gradient was {huge} at step {first.at:,}, and {typical} is typical since: {keeps}",
        f"begin again with a new optimizer, from weights of before step {first.at:,} if there are any",
    ]
    if len(found) > 1:
        evidence.insert(1, f"so it is with {words.listing([words.printable(stall.info.name) for stall in found[1:]])}")
    remedies = ("clip_gradients", "clean_input")
    yield Finding("stalled", "warning", first.info.name, first.since, last, tuple(evidence), remedies, "weight")


def _stall(run: Run, info: TensorInfo, last: int) -> Stall | None:
    begin = max(run.first_step, last - LOOKED_AT + 1)
    ratios = ratios_of(run, info, begin, last)
    since = _still_since(ratios)
    if since is None:
        return None
    earlier = run.binned(f"update/{info.name}", "update_ratio", run.first_step, since - 1, BINS).high
    if not (earlier[np.isfinite(earlier)] >= MOVED).any() or _decayed(run, since, last):
        return None
    gradient, weight = _typical(run, info.tag, since, last), _typical(run, f"weight/{info.name}", since, last)
    line = run.binned(info.tag, "norm", run.first_step, since - 1, BINS)
    if not gradient >= ASKED * weight or not np.isfinite(line.high).any():
        return None
    peak = int(np.nanargmax(line.high))
    huge = float(line.high[peak])
    if huge < HUGE * gradient:
        return None
    near = run.series(info.tag, "norm", int(line.step[peak]), int(line.step[peak]) + line.steps_per_bin - 1)
    at = int(near.steps[np.nanargmax(near.values)])
    return Stall(info, since, huge, at, gradient, gradient / weight if weight else float("inf"))


def _still_since(ratios: dict[int, float]) -> int | None:
    """The first of the full steps since which all updates are nothing; None where there are too few."""
    steps, values = np.array(list(ratios)), np.array(list(ratios.values()))
    moving = np.flatnonzero(values > NOTHING)
    still = steps[moving[-1] + 1 :] if len(moving) else steps
    return int(still[0]) if len(still) >= FEWEST and still[0] > 0 else None


def _decayed(run: Run, since: int, last: int) -> bool:
    before, now = learning_rate(run, since - 1), run.series("scalar/learning_rate", "value", since, last).values
    now = now[np.isfinite(now)]
    return len(before) > 0 and len(now) > 0 and bool(now.min() < DECAYED * before.max())


def _typical(run: Run, tag: str, first: int, last: int) -> float:
    """Median norm, NaN where none was measured."""
    values = run.binned(tag, "norm", first, last, BINS).high
    values = values[np.isfinite(values)]
    return float(np.median(values)) if len(values) else float("nan")
