"""Data on a scale that the network was not made for: one abnormal batch, or raw values all along."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.batch import Batch, told
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.operation import EXPONENTIALS

PHASES: Final = ("forward", "loss", "backward", "update")
NOTABLE: Final = 10.0  # times the median norm of the batches before
CERTAIN: Final = 1e4  # nothing that training data does on an ordinary day
RAW: Final = 50.0  # networks are initialized for inputs of about 1; raw pixels, prices and dates are beyond
HUGE: Final = 1e6


def input_extreme_scale(case: Case) -> Cause | None:
    """An abnormal batch is a likely cause of what happened at its step; raw data all along is a suspect at most."""
    op, phase = case.op, case.incident.origin.phase
    if phase not in PHASES:
        return None
    too_large = op.outgrown or (op.overflowed and op.name in EXPONENTIALS)
    jumps = [batch for batch in case.batch if batch.jump is not None and batch.jump >= NOTABLE]
    if jumps:
        worst = max(jumps, key=lambda batch: batch.jump or 0.0)
        return Cause(
            "input_extreme_scale", _confidence(worst.jump or 0.0, too_large), (_jumped(worst),), ("clean_input",)
        )
    raw = large(case)
    if raw and (too_large or not op.known):
        seen = f"{told(raw[0])} reaches {words.magnitude(raw[0].largest)}: it is not scaled to about 1"
        sure = 0.8 if raw[0].largest >= HUGE and too_large and not case.trends else 0.35 if too_large else 0.2
        return Cause("input_extreme_scale", sure, (seen,), ("clean_input",))
    return None


def large(case: Case) -> list[Batch]:
    """Tensors of the batch far from the scale that initial weights are made for; the largest first."""
    features = [batch for batch in case.batch if not batch.label] or case.batch
    return sorted((batch for batch in features if batch.largest >= RAW), key=lambda batch: -batch.largest)


def _confidence(jump: float, too_large: bool) -> float:
    if not too_large:
        return 0.6 if jump >= CERTAIN else 0.4
    return 0.97 if jump >= CERTAIN else 0.75


def _jumped(batch: Batch) -> str:
    jump = words.magnitude(batch.jump or 0.0)
    seen = f"{told(batch)} of this batch is {jump} times as large as in those before"
    if batch.largest < 2 * batch.typical:  # nobody looked at the extremes of this very batch
        return seen
    return f"{seen} (largest value {words.magnitude(batch.largest)}, {words.magnitude(batch.typical)} before)"
