"""A matrix that nearly every step replaces, while the loss does not come down: it cannot keep what it learns.

MindInsight and TheDeepChecker warn from a tenth of the weights on, AWS from tenfold; a clipped critic or a table of
embeddings moves by a tenth for a while and is well. Here it is 0.3 of the norm, in the median of all steps
measured, and the loss must not have been better than at the beginning. Where most layers do so, the learning rate is
to blame, and the rule on it speaks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules.activations import FEWEST_STEPS, last_step
from tb_nanwatch.diagnose.rules.course import extent
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.diagnose.rules.learning_rate_too_high import learning_rate_too_high
from tb_nanwatch.diagnose.rules.updates import moves
from tb_nanwatch.store.run import Run

RATIO: Final = 0.3


def update_too_large(run: Run) -> Iterable[Finding]:
    """At most one finding, on the matrix that is changed most."""
    last = last_step(run)
    loss = extent(run, last)
    if last - run.first_step + 1 < FEWEST_STEPS or loss is None or not loss.untrained:
        return
    large = [m for m in moves(run, last) if m.typical >= RATIO and not m.from_zeros]
    if not large or any(learning_rate_too_high(run)):
        return
    worst = max(large, key=lambda m: m.typical)
    name = words.printable(worst.info.name)
    evidence = [
        f"a step changes {name} by {words.magnitude(worst.typical)} of its norm, in the median; a hundredth is much",
        f"its gradient is {words.magnitude(worst.asked)} times its norm",
        "the loss was never better than before the first update for long",
    ]
    if len(large) > 1:
        others = [words.printable(m.info.name) for m in large if m is not worst]
        evidence.insert(1, f"so it is with {words.listing(others)}")
    remedies = ("clip_gradients", "lower_learning_rate", "initializer")
    yield Finding(
        "update_too_large", "warning", worst.info.name, run.first_step, last, tuple(evidence), remedies, "weight"
    )
