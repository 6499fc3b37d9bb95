"""Numbers that grew from step to step until the dtype could not hold them or their square."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tb_nanwatch.diagnose import columns, words
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.causes.input_extreme_scale import large
from tb_nanwatch.diagnose.growth import Trend
from tb_nanwatch.diagnose.operation import Operation, told
from tb_nanwatch.stats.dtypes import largest

PHASES: Final = ("forward", "loss", "backward", "update")
LEAST_FACTOR: Final = 1000.0
#: A third of the octaves to the dtype's maximum: from there a loss that squares, a product of two layers or the next
#: step of the same growth overflows. Growth that ends lower ends in some other fault (a log, an exp).
REACH: Final = 1 / 3
OCTAVES: Final = {"float16": 16, "float64": 1024}  # log2 of the largest number; 128 for float32 and bfloat16
MOST_EVIDENCE: Final = 3


def growth_overflow(case: Case) -> Cause | None:
    """Steady growth to within reach of the dtype's maximum right before the incident, or an op that ran out of it."""
    if case.incident.origin.phase not in PHASES:
        return None
    grown = overgrown(case)
    overflow = _overflow(case.op)
    if not grown:
        if case.incident.first_step <= case.run.first_step:  # nothing has been updated yet that could have grown
            return None
        return Cause("growth_overflow", 0.45, overflow, remedies(case)) if overflow else None
    return Cause("growth_overflow", sureness(grown), (*overflow, *said(grown), *_fed(case)), remedies(case))


def _fed(case: Case) -> tuple[str, ...]:
    """What the network is fed, where that is on several scales."""
    return tuple(columns.told(part) for part in columns.odd(case.run)[:1])


def overgrown(case: Case) -> list[Trend]:
    """The steady trends by LEAST_FACTOR that came within REACH, unless the op of the origin has its own explanation."""
    op = case.op
    if op.known and not op.outgrown:
        return []
    return [t for t in case.trends or () if t.steady and t.factor >= LEAST_FACTOR and _share(t) >= REACH]


def remedies(case: Case) -> tuple[str, ...]:
    """Smaller steps; scaled data where it is not."""
    return ("lower_learning_rate", "clip_gradients", *(("clean_input",) if large(case) else ()))


def sureness(grown: Sequence[Trend]) -> float:
    """0.6 just within reach, 0.9 when the last finite number stood close to the largest one."""
    return round(0.6 + 0.3 * min(1.0, (max(map(_share, grown)) - REACH) / REACH), 2)


def said(grown: Sequence[Trend]) -> tuple[str, ...]:
    """The trends in words."""
    return tuple(
        f"{t.label} grew {words.magnitude(t.factor)} times from step {t.first_step:,} to step {t.last_step:,}, "
        f"from {words.magnitude(t.first)} to {words.magnitude(t.last)}"
        for t in grown[:MOST_EVIDENCE]
    )


def _overflow(op: Operation) -> tuple[str, ...]:
    if not op.outgrown or op.dtype == "float16":  # which has a rule of its own
        return ()
    operands = [operand for operand in op.inputs if "float" in operand.dtype]
    if not operands:
        return ()
    widest = max(operands, key=lambda operand: max(abs(operand.min), abs(operand.max)))
    ends = words.magnitude(largest(widest.dtype))
    return (f"{op.said()} of {told(widest)} passed {ends}, the largest {words.printable(widest.dtype)}",)


def _share(trend: Trend) -> float:
    """How far the last value has come to the dtype's maximum, in octaves; 1 is there."""
    return math.log2(max(trend.last, 1.0)) / OCTAVES.get(trend.dtype, 128)
