"""A matrix that receives a gradient at every step, and that no step ever changes, while training goes on elsewhere.

AWS calls an update below 1e-8 of the weights too small. Two things make it nothing at all: numbers of few bits, where
a small change rounds away (a bfloat16 weight moves by 1/256 of its value or not at all), and an optimizer that
was not given the variable. Updates of other matrices at the same steps show that none were merely being accumulated;
where all matrices are of few bits and stand still, so must every norm, over the whole run, and the loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules.activations import FEWEST_STEPS, last_step
from tb_nanwatch.diagnose.rules.course import stuck
from tb_nanwatch.diagnose.rules.depth import BINS
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.diagnose.rules.updates import Moves, moves
from tb_nanwatch.store.run import Run

RATIO: Final = 1e-8
ASKED: Final = 1e-4  # gradient over weight: less asks for nothing
FEWEST: Final = 10  # updates measured
BITS: Final = {"float16": 11, "bfloat16": 8}  # of the significand


def update_too_small(run: Run) -> Iterable[Finding]:
    """At most one finding, on the first matrix that stands still."""
    last = last_step(run)
    if last - run.first_step + 1 < FEWEST_STEPS:
        return
    moved = moves(run, last)
    still = [m for m in moved if len(m.ratios) >= FEWEST and m.asked >= ASKED and _never_moved(run, m, last)]
    few_bits = [m for m in still if m.info.dtype in BITS]
    if not still or (len(still) == len(moved) and not (len(few_bits) == len(still) and _frozen(run, still, last))):
        return
    first = few_bits[0] if few_bits else still[0]
    name = words.printable(first.info.name)
    evidence = [
        f"the gradient of {name} is {words.magnitude(first.asked)} of its norm, and no step measured changed it at all"
    ]
    if len(still) > 1:
        others = [words.printable(m.info.name) for m in still if m is not first]
        evidence.append(f"so it is with {words.listing(others)}")
    if few_bits:
        share = words.magnitude(2.0 ** -BITS[first.info.dtype])
        evidence.append(f"a {first.info.dtype} weight can change by {share} of its value or more: less rounds away")
        remedies: tuple[str, ...] = ("mixed_precision_policy", "raise_learning_rate")
    else:
        evidence.append(
            "other layers do move: was the optimizer given this variable, and is its update not rounded away?"
        )
        remedies = ("raise_learning_rate",)
    yield Finding(
        "update_too_small", "warning", first.info.name, run.first_step, last, tuple(evidence), remedies, "weight"
    )


def _never_moved(run: Run, m: Moves, last: int) -> bool:
    """Whether no update was anything, also of those that `m` does not reach back to."""
    if (m.ratios > RATIO).any():
        return False
    whole = run.binned(f"update/{m.info.name}", "update_ratio", run.first_step, last, BINS).high
    return not (whole[np.isfinite(whole)] > RATIO).any()


def _frozen(run: Run, still: Sequence[Moves], last: int) -> bool:
    for m in still:
        line = run.binned(f"weight/{m.info.name}", "norm", run.first_step, last, BINS)
        known = np.isfinite(line.high)
        if not known.any() or line.low[known].min() != line.high[known].max():
            return False
    return stuck(run, last)
