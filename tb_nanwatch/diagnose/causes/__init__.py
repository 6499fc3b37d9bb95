"""Why an incident happened. One rule a file: a function from a Case to a Cause, or None where it proves nothing.

`CAUSES` lists them; the most confident answer is the cause, the others are `other_causes`.
"""

from __future__ import annotations

from collections.abc import Callable

from tb_nanwatch.diagnose.causes.bad_initialization import bad_initialization
from tb_nanwatch.diagnose.causes.bad_learning_rate import bad_learning_rate
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.causes.division_by_zero import division_by_zero
from tb_nanwatch.diagnose.causes.domain_error import domain_error
from tb_nanwatch.diagnose.causes.exp_overflow import exp_overflow
from tb_nanwatch.diagnose.causes.float16_overflow import float16_overflow
from tb_nanwatch.diagnose.causes.growth_overflow import growth_overflow
from tb_nanwatch.diagnose.causes.input_extreme_scale import input_extreme_scale
from tb_nanwatch.diagnose.causes.input_nonfinite import input_nonfinite
from tb_nanwatch.diagnose.causes.label_invalid import label_invalid
from tb_nanwatch.diagnose.causes.log_of_nonpositive import log_of_nonpositive
from tb_nanwatch.diagnose.causes.loss_scale import loss_scale
from tb_nanwatch.diagnose.causes.masked_or_empty_reduction import masked_or_empty_reduction
from tb_nanwatch.diagnose.causes.nan_gradient_through_where import nan_gradient_through_where
from tb_nanwatch.diagnose.causes.nothing import nothing
from tb_nanwatch.diagnose.causes.sqrt_or_pow_gradient_at_zero import sqrt_or_pow_gradient_at_zero

CauseRule = Callable[[Case], Cause | None]

#: Of equally confident answers the one listed first wins.
CAUSES: tuple[CauseRule, ...] = (
    input_nonfinite,
    label_invalid,
    nan_gradient_through_where,
    masked_or_empty_reduction,
    log_of_nonpositive,
    division_by_zero,
    sqrt_or_pow_gradient_at_zero,
    domain_error,
    exp_overflow,
    loss_scale,
    float16_overflow,
    bad_initialization,
    input_extreme_scale,
    bad_learning_rate,
    growth_overflow,
)

__all__ = ["CAUSES", "Case", "Cause", "CauseRule", "causes_of"]


def causes_of(case: Case) -> tuple[Cause, ...]:
    """All causes that the recorded data supports, the most confident first; never empty."""
    found = [cause for rule in CAUSES if (cause := rule(case)) is not None]
    return tuple(sorted(found, key=lambda cause: -cause.confidence)) or (nothing(case),)
