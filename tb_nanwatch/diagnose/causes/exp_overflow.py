"""An exponential of a number that is too large for it."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.causes.input_extreme_scale import large
from tb_nanwatch.diagnose.operation import EXPONENTIALS, exponent_limit, told

EVEN: Final = ("Cosh", "Sinh")  # these overflow on the negative side as well


def exp_overflow(case: Case) -> Cause | None:
    """Certain where the largest input is above the logarithm of the dtype's maximum."""
    op = case.op
    operand = op.operand(0)
    if op.name not in EXPONENTIALS or operand is None or not op.overflowed:
        return None
    limit = exponent_limit(operand.dtype)
    widest = max(operand.max, -operand.min) if op.name in EVEN else operand.max
    if widest < limit - 1:
        return None
    seen = (
        f"{op.name} received values up to {words.magnitude(widest)} in {told(operand)}; in "
        f"{words.printable(operand.dtype)} it overflows above {words.magnitude(limit)}"
    )
    first = ("clean_input",) if large(case) else ()
    remedies = (*first, "clip_predictions_or_from_logits", "lower_learning_rate", "clip_gradients")
    return Cause("exp_overflow", 0.95, (seen,), remedies)
