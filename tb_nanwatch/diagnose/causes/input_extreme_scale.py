"""Data on a scale that the network was not made for: one abnormal batch, or raw values all along."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.diagnose import columns, words
from tb_nanwatch.diagnose.batch import Batch, told
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.operation import EXPONENTIALS, LOGS

PHASES: Final = ("forward", "loss", "backward", "update")
NOTABLE: Final = 10.0  # times the median norm of the batches before
CERTAIN: Final = 1e4  # nothing that training data does on an ordinary day
RAW: Final = 50.0  # networks are initialized for inputs of about 1; raw pixels, prices and dates are beyond
HUGE: Final = 1e6
SURE: Final = 0.92  # growth explains what such a column does, not where it comes from


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
    found = [cause for cause in (_column(case, too_large), _raw(case, too_large)) if cause is not None]
    return max(found, key=lambda cause: cause.confidence, default=None)


def _raw(case: Case, too_large: bool) -> Cause | None:
    """Data that is large all along: a suspect at most, unless it is huge."""
    op, raw = case.op, large(case)
    if raw and (too_large or not op.known):
        seen = f"{told(raw[0])} reaches {words.magnitude(raw[0].largest)}: it is not scaled to about 1"
        sure = 0.8 if raw[0].largest >= HUGE and too_large and not case.trends else 0.35 if too_large else 0.2
        return Cause("input_extreme_scale", sure, (seen,), ("clean_input",))
    return None


def _column(case: Case, too_large: bool) -> Cause | None:
    """Columns that are unlike the others from the first batch on: sure where they are far apart and numbers ran out.

    Where a logarithm or a power failed, a first layer that they saturate may be behind it.
    """
    odd = columns.odd(case.run)
    if not odd:
        return None
    apart, grew = columns.apart(odd[0]), not case.op.known and bool(case.trends)
    if too_large or grew:
        sure = SURE if apart else 0.35
    elif apart:
        sure = 0.5 if case.op.forward in LOGS | EXPONENTIALS or not case.op.known else 0.2
    elif not case.op.known:
        sure = 0.2
    else:
        return None
    return Cause("input_extreme_scale", sure, tuple(columns.told(part) for part in odd[:2]), ("clean_input",))


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
