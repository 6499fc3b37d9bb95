"""Numbers that grew from step to step until the dtype could not hold them or their square."""

from __future__ import annotations

import math
from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.growth import Trend

PHASES: Final = ("forward", "loss", "backward", "update")
LEAST_FACTOR: Final = 1000.0
#: A third of the octaves to the dtype's maximum: from there a loss that squares, a product of two layers or the next
#: step of the same growth overflows. Growth that ends lower ends in some other fault (a log, an exp).
REACH: Final = 1 / 3
OCTAVES: Final = {"float16": 16, "float64": 1024}  # log2 of the largest number; 128 for float32 and bfloat16
MOST_EVIDENCE: Final = 3


def growth_overflow(case: Case) -> Cause | None:
    """Steady growth by LEAST_FACTOR to within reach of the dtype's maximum, in the steps right before the incident."""
    if case.incident.origin.phase not in PHASES:
        return None
    grown = [t for t in case.trends or () if t.steady and t.factor >= LEAST_FACTOR and _share(t) >= REACH]
    if not grown:
        return None
    # 0.6 just within reach, 0.9 when the last finite number stood close to the largest one.
    confidence = round(0.6 + 0.3 * min(1.0, (max(map(_share, grown)) - REACH) / REACH), 2)
    evidence = tuple(
        f"{t.label} grew {words.magnitude(t.factor)} times from step {t.first_step:,} to step {t.last_step:,}, "
        f"from {words.magnitude(t.first)} to {words.magnitude(t.last)}"
        for t in grown[:MOST_EVIDENCE]
    )
    return Cause("growth_overflow", confidence, evidence, ("lower_learning_rate", "clip_gradients"))


def _share(trend: Trend) -> float:
    """How far the last value has come to the dtype's maximum, in octaves; 1 is there."""
    return math.log2(max(trend.last, 1.0)) / OCTAVES.get(trend.dtype, 128)
