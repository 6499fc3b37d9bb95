"""A learning rate so high that the updates replace the weights: the loss jumps, or shakes, and does not come down.

MindInsight and TheDeepChecker call an update of more than a tenth of the weights too large, DeepDiagnosis likewise;
UMLAUT a learning rate above 0.01. Healthy runs do all that for a while: 0.2 of the weights at the first steps of plain
SGD, and more behind zeros. So either the first update is 0.3 of the weights in half of the matrices and the loss
then rose to ten times what it was before any update, or the updates stay above a tenth; and no tenth of the run
may have been better than the very first loss, which a run that recovers is (a tenth of it, after a thirtyfold
rise: a network with dead layers ends at what guessing gives).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules.activations import FEWEST_STEPS, last_step
from tb_nanwatch.diagnose.rules.course import extent
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.diagnose.rules.updates import Moves, learning_rate, moves
from tb_nanwatch.store.run import Run

FIRST_RATIO: Final = 0.3
RATIO: Final = 0.1
SHARE: Final = 0.5  # of the matrices
RISE: Final = 10.0  # times the first loss; batches of eight differ threefold
THROWN: Final = 30.0  # times the first loss: then it must come down to a tenth, to have recovered
TENTH: Final = 0.1


def learning_rate_too_high(run: Run) -> Iterable[Finding]:
    """At most one finding, on the matrix that was changed most."""
    last = last_step(run)
    if last - run.first_step + 1 < FEWEST_STEPS:
        return
    loss = extent(run, last)
    if loss is None or not (loss.untrained or (loss.rose(THROWN) and loss.lowest > TENTH * loss.first)):
        return
    began = [m for m in moves(run, last, fewest=1) if not m.from_zeros]  # the first update is known of a short run, too
    at_once = [m for m in began if m.first >= FIRST_RATIO]
    moved = [m for m in moves(run, last) if not m.from_zeros]
    always = [m for m in moved if m.typical >= RATIO]
    if _most(at_once, began) and loss.rose(RISE):
        worst = max(at_once, key=lambda m: m.first)
        share = f"the first update alone was {words.magnitude(worst.first)} of the norm of"
        others = "and of that order in most layers"
    elif _most(always, moved):
        worst = max(always, key=lambda m: m.typical)
        share = f"a step changes, in the median, {words.magnitude(worst.typical)} of the norm of"
        others = "and a tenth or more in most layers"
    else:
        return
    went = f"was {words.magnitude(loss.first)} before any update, rose to {words.magnitude(loss.highest)}"
    evidence = [
        f"{share} {words.printable(worst.info.name)}, {others}; a hundredth is much",
        f"{words.place('loss', loss.name)} {went} and was at best {words.magnitude(loss.lowest)} for long",
    ]
    rates = learning_rate(run, last)
    if len(rates):
        evidence.append(f"the learning rate was {words.magnitude(float(np.max(rates)))}")
    remedies = ("lower_learning_rate", "clip_gradients")
    yield Finding(
        "learning_rate_too_high", "warning", worst.info.name, run.first_step, last, tuple(evidence), remedies, "weight"
    )


def _most(some: Sequence[Moves], of: Sequence[Moves]) -> bool:
    return len(some) > 0 and len(some) >= SHARE * len(of)
