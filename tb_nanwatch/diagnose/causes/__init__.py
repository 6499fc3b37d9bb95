"""Why an incident happened. One rule a file: a function from a Case to a Cause, or None where it proves nothing.

`CAUSES` lists them; the most confident answer is the cause, the others are `other_causes`.
"""

from __future__ import annotations

from collections.abc import Callable

from tb_nanwatch.diagnose.causes.bad_initialization import bad_initialization
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.causes.growth_overflow import growth_overflow
from tb_nanwatch.diagnose.causes.input_nonfinite import input_nonfinite
from tb_nanwatch.diagnose.causes.nothing import nothing

CauseRule = Callable[[Case], Cause | None]

CAUSES: tuple[CauseRule, ...] = (input_nonfinite, growth_overflow, bad_initialization)

__all__ = ["CAUSES", "Case", "Cause", "CauseRule", "causes_of"]


def causes_of(case: Case) -> tuple[Cause, ...]:
    """All causes that the recorded data supports, the most confident first; never empty."""
    found = [cause for rule in CAUSES if (cause := rule(case)) is not None]
    return tuple(sorted(found, key=lambda cause: -cause.confidence)) or (nothing(case),)
