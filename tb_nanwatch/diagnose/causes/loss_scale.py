"""A loss scale that makes the gradients overflow in half precision, step after step."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.operation import Operation
from tb_nanwatch.diagnose.window import norms
from tb_nanwatch.format.records import OperandStats

SKIPS: Final = 50  # steps in a row: from there the recorder calls skipping an incident
LARGE: Final = 128.0
REMEDIES: Final = ("mixed_precision_policy", "clean_input")  # a smaller step makes no gradient smaller


def loss_scale(case: Case) -> Cause | None:
    """A float16 gradient overflowed while the forward pass had not, or a factor on the loss did it."""
    op, incident = case.op, case.incident
    factor = _factor(op)
    if factor is not None and incident.origin.phase in ("loss", "backward"):
        seen = f"{op.name} multiplied by the constant {words.magnitude(factor.max)} in float16, which ends at 65,504"
        return Cause("loss_scale", 0.97, (seen,), REMEDIES)
    if incident.origin.phase != "backward":
        return None
    scale = _scale(case)
    if op.overflowed and op.dtype == "float16":
        by = f" scaled by {words.magnitude(scale)}" if scale else ""
        seen = f"the loss was finite; its gradient{by} passed 65,504, the largest float16, in {op.said()}"
        return Cause("loss_scale", 0.9 if scale else 0.75, (seen,), REMEDIES)
    if scale and _only_skips(case):
        seen = f"the gradients were non-finite for {SKIPS} steps in a row, so every update was skipped"
        return Cause("loss_scale", 0.85, (seen, _course(case)), REMEDIES)
    return None


def _course(case: Case) -> str:
    """What the loss scale did: one that falls to 1 and still overflows is not what is too large."""
    series = case.run.series("scalar/loss_scale", "value", 0, case.incident.first_step)
    known = np.flatnonzero(np.isfinite(series.values))
    first, last = series.values[known[0]], series.values[known[-1]]
    if last < first:
        steps = words.span(int(series.steps[known[0]]), int(series.steps[known[-1]]))
        return f"the loss scale fell from {words.magnitude(first)} to {words.magnitude(last)} over {steps}"
    return f"the loss scale stands at {words.magnitude(last)}"


def _factor(op: Operation) -> OperandStats | None:
    """A scalar constant operand of a float16 product that is large enough to be a loss scale."""
    if op.name != "Mul" or not op.overflowed or op.dtype != "float16":
        return None
    return next(
        (o for o in op.inputs if o.shape == () and o.min == o.max and o.max >= LARGE and not o.name), None
    ) or next((o for o in op.inputs if o.shape == () and o.name.startswith("input ") and o.max >= LARGE), None)


def _scale(case: Case) -> float:
    """The loss scale of the latest step at which one was recorded, 0 without one."""
    values = case.run.series("scalar/loss_scale", "value", 0, case.incident.first_step).values
    values = values[np.isfinite(values)]
    return float(values[-1]) if len(values) else 0.0


def _only_skips(case: Case) -> bool:
    last = case.incident.first_step
    if last + 1 < SKIPS or not case.run.kind("gradient"):
        return False
    return bool(np.isinf(norms(case.run, "gradient", last + 1 - SKIPS, last)).any(axis=0).mean() > 0.9)
