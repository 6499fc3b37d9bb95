"""Half-precision numbers so large that a few times as much no longer fits.

No peer has a threshold (Hugging Face's DebugUnderflowOverflow prints the extremes for the eye). Two octaves, a quarter
of the dtype's maximum, is what an unlucky batch or a few updates make up for. Masks are full of constants near the
maximum on purpose: a tensor whose largest element never changes is none of this rule's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules.activations import FEWEST_STEPS, FULL_STEPS, last_step
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.stats.dtypes import largest
from tb_nanwatch.store.run import Run

DTYPES: Final = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
KINDS: Final = ("weight", "gradient", "activation")
OCTAVES: Final = 2.0
HABIT: Final = 0.5  # of the measured steps
FEWEST_MEASURED: Final = 3
CHANGE: Final = 0.05  # of the largest element, from the lowest to the highest measured
MOST_TENSORS: Final = 256


def small_headroom(run: Run) -> Iterable[Finding]:
    """At most one finding, on the tensor that came closest to the end of its dtype lately."""
    last = last_step(run)
    if last - run.first_step + 1 < FEWEST_STEPS:
        return
    first = max(run.first_step, last - 2 * FULL_STEPS * max(run.header.every, 1) + 1)
    half = [info for kind in KINDS for info in run.kind(kind) if info.dtype in DTYPES]
    tight = [t for t in (_tight(run, info, first, last) for info in half[:MOST_TENSORS]) if t is not None]
    if not tight:
        return
    info, at, most = max(tight, key=lambda t: t[2] / largest(t[0].dtype))
    room = np.log2(largest(info.dtype) / most)
    evidence = [
        (
            f"the largest element of {words.place(info.kind, info.name, info.layer)} was {words.magnitude(most)} at "
            f"step {at:,}; {info.dtype} ends at {words.magnitude(largest(info.dtype))}, {room:.1f} doublings above"
        )
    ]
    if len(tight) > 1:
        others = [words.place(i.kind, i.name, i.layer) for i, _, _ in tight if i.tag != info.tag]
        evidence.append(f"little more is left to {words.listing(others, 3)}")
    yield Finding(
        "small_headroom", "warning", info.name, first, last, tuple(evidence), ("mixed_precision_policy",), info.kind
    )


def _tight(run: Run, info: TensorInfo, first: int, last: int) -> tuple[TensorInfo, int, float] | None:
    """Step and size of the largest element, if such sizes are the habit of these steps."""
    line = run.series(info.tag, "max_abs", first, last)
    known = np.isfinite(line.values) & (line.values > 0)
    steps, values = line.steps[known], line.values[known]
    if len(values) < FEWEST_MEASURED or values.max() - values.min() < CHANGE * values.max():
        return None
    near = values > largest(info.dtype) / 2.0**OCTAVES
    if np.mean(near) < HABIT:
        return None
    return info, int(steps[np.argmax(values)]), float(values.max())
