"""Initial weights on the wrong scale: at step 0 the outputs grow, or fade, from layer to layer.

AWS warns of a variance that changes tenfold between layers, DeepDiagnosis of one outside [1e-5, 10]; pooling, tables
and plain Glorot weights behind relu do that in healthy networks. Here the typical element must change a ten
thousandfold over the depth, as for the cause of the same name, in most of the layers, and no single layer may make
more than half of it. Outputs that fade are harmless where training recovers: then the loss must not have moved either.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules.activations import FEWEST_STEPS, last_step, layers
from tb_nanwatch.diagnose.rules.beginning import at_beginning, norm_at
from tb_nanwatch.diagnose.rules.course import stuck
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.store.run import Run

FEWEST_LAYERS: Final = 4
FACTOR: Final = 1e4  # first to last layer, of the root mean square
ONE_WAY_SHARE: Final = 0.8  # of the layers change the same way
LARGEST_STEP_SHARE: Final = 0.5  # of the whole change, in one layer
REMEDIES: Final = ("initializer", "use_activation_or_normalization")


def bad_initialization(run: Run) -> Iterable[Finding]:
    """At most one finding, on the layer that puts out the most, or the least."""
    last = last_step(run)
    if not at_beginning(run) or last - run.first_step + 1 < FEWEST_STEPS:
        return
    weighted = {info.layer for info in run.kind("gradient")}
    known = [(info, size) for info in layers(run) if info.layer in weighted and (size := _size(run, info)) > 0]
    if len(known) < FEWEST_LAYERS:
        return
    sizes = np.array([size for _, size in known])
    steps, whole = np.diff(np.log(sizes)), float(np.log(sizes[-1] / sizes[0]))
    way = np.sign(whole)
    if abs(whole) < np.log(FACTOR) or np.mean(way * steps > 0) < ONE_WAY_SHARE:
        return
    if (way * steps).max() > LARGEST_STEP_SHARE * abs(whole):
        return
    if way < 0 and not stuck(run, last):
        return
    (first, begin), (end, size) = known[0], known[-1]
    verb, times = ("grow", size / begin) if way > 0 else ("fade", begin / size)
    each = float(np.exp(whole / len(steps)))
    ends = (
        f"the typical element is {words.magnitude(begin)} in {words.printable(first.layer)} and "
        f"{words.magnitude(size)} in {words.printable(end.layer)}"
    )
    evidence = (
        f"at step 0 the outputs {verb} {words.magnitude(float(times))}-fold over {len(known)} layers: {ends}",
        f"on average each layer multiplies by {words.magnitude(each)}, where about 1 is right",
    )
    yield Finding("bad_initialization", "warning", end.name, 0, 0, evidence, REMEDIES, end.kind)


def _size(run: Run, info: TensorInfo) -> float:
    """Root mean square of an output at step 0; an unknown size of the batch cancels out between layers."""
    shape = info.shape or ()
    if not shape or any(dim <= 0 for dim in shape[1:]):
        return 0.0
    elements = int(np.prod([dim for dim in shape if dim > 0], dtype=np.int64))
    return norm_at(run, info.tag, 0) / float(np.sqrt(elements))
