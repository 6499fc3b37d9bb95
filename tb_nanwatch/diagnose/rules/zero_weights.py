"""Weights that began as zeros and can never become anything else, since their gradient is zero as well.

Zeros alone are no fault: last layers, residual branches and adapters begin so on purpose, and the first gradient moves
them. Two layers of zeros, one behind the other, keep each other at zero. AWS warns of tensors that are all zero; here
the gradient must be exactly zero too, at every step measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules import depth
from tb_nanwatch.diagnose.rules.activations import FEWEST_STEPS, last_step
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.store.run import Run

BINS: Final = 64
FEWEST_MEASURED: Final = 3
MOST_LAYERS: Final = 64


def zero_weights(run: Run) -> Iterable[Finding]:
    """At most one finding, on the first matrix of zeros."""
    last = last_step(run)
    if last - run.first_step + 1 < FEWEST_STEPS:
        return
    matrices = depth.matrices(run.kind("gradient"))[:MOST_LAYERS]
    found = [i for i in matrices if _all_zero(run, f"weight/{i.name}", last) and _all_zero(run, i.tag, last)]
    if not found:
        return
    evidence = [f"every weight of {words.printable(found[0].name)} is 0, and so is its gradient at every step"]
    if len(found) > 1:
        evidence.append(f"so it is with {words.listing([words.printable(info.name) for info in found[1:]])}")
    evidence.append("zeros in front of zeros, or of units that are dead, receive no gradient: they will never learn")
    yield Finding(
        "bad_initialization",
        "warning",
        found[0].name,
        run.first_step,
        last,
        tuple(evidence),
        ("initializer",),
        "weight",
    )


def _all_zero(run: Run, tag: str, last: int) -> bool:
    high = run.binned(tag, "norm", run.first_step, last, BINS).high
    high = high[np.isfinite(high)]
    return len(high) >= FEWEST_MEASURED and bool((high == 0).all())
