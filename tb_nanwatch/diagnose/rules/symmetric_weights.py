"""A hidden layer whose units begin as copies of each other, in front of one that treats them alike: they get the same
gradients and stay copies for ever, so that the layer is worth a single unit.

No threshold but the precision of what is stored: the elements of both matrices are equal. One constant matrix
is none: the next one tells the units apart, and the last layer of a classifier may begin as zeros.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules import depth
from tb_nanwatch.diagnose.rules.activations import FEWEST_STEPS, last_step
from tb_nanwatch.diagnose.rules.beginning import at_beginning, constant
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.diagnose.rules.zero_weights import zero_weights
from tb_nanwatch.store.run import Run

MOST_LAYERS: Final = 64


def symmetric_weights(run: Run) -> Iterable[Finding]:
    """At most one finding, on the first hidden layer of equal units."""
    last = last_step(run)
    if not at_beginning(run) or last - run.first_step + 1 < FEWEST_STEPS or any(zero_weights(run)):
        return
    matrices = depth.matrices(run.kind("gradient"))[:MOST_LAYERS]
    values = [constant(run, info) for info in matrices]
    for (info, value), (behind, other) in pairwise(zip(matrices, values, strict=True)):
        units = (info.shape or (0,))[-1]
        if value is None or other is None or units < 2:
            continue
        front, back = words.printable(info.name), words.printable(behind.name)
        began = f"every weight of {front} began as {words.magnitude(value)}, and every weight of {back} behind it as"
        evidence = (
            f"{began} {words.magnitude(other)}",
            f"so its {units:,} units put out the same, get the same gradients and stay copies of each other",
        )
        yield Finding("bad_initialization", "warning", info.name, 0, last, evidence, ("initializer",), "weight")
        return
