"""A column of the input on a scale of its own, such as a raw time stamp or price, that reaches the network as it is.

Threshold: 4,096 times the median column and at least 10,000. The size of a column enters the curvature of the first
layer squared, and 4,096 squared is float32's resolution (see LeCun et al., Efficient BackProp, 4.3, on inputs of one
size). Tables of areas and counts stay below it. A network that normalizes its input, or looks it up in an embedding,
shows no such numbers behind its layers, and is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from tb_nanwatch.diagnose import columns, words
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.store.run import Run

ARRIVES: Final = 1e-3  # of the column: initial weights divide by the root of the width, not by more
BOUNDED: Final = ("sigmoid", "tanh", "softsign", "hard_sigmoid", "softmax")
FULL: Final = 0.99  # of the range of those


def extreme_column(run: Run) -> Iterable[Finding]:
    """At most one finding, on the input whose columns are furthest apart."""
    if run.incidents:  # whose causes tell it
        return
    found = next((part for part in columns.odd(run) if columns.apart(part)), None)
    if found is None:
        return
    reached = _reached(run, found.extreme[0].reach)
    if reached is None:
        return
    info, size = reached
    behind = f"{words.place('activation', info.name)} reaches {words.magnitude(size)} in the first steps"
    evidence, first = (columns.told(found), behind), run.first_step
    yield Finding("input_extreme_scale", "warning", found.name, first, first, evidence, ("clean_input",), "input")


def _reached(run: Run, reach: float) -> tuple[TensorInfo, float] | None:
    """The first output of a layer that shows the column's size, or is driven to its bounds by it."""
    for number, info in enumerate(run.kind("activation")):
        sizes = run.series(info.tag, "max_abs", run.first_step, run.first_step + 16).values
        sizes = sizes[np.isfinite(sizes)]
        size = float(sizes[0]) if len(sizes) else 0.0
        bounded = number == 0 and info.activation in BOUNDED and size >= FULL
        if size >= ARRIVES * reach or bounded:
            return info, size
    return None
