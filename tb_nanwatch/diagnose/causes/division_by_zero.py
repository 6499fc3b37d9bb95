"""A division by zero, or by a number so small that the quotient overflows."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.diagnose import columns, words
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.causes.domain_error import DOMAINS
from tb_nanwatch.diagnose.causes.sqrt_or_pow_gradient_at_zero import ROOTS
from tb_nanwatch.diagnose.operation import DIVISIONS, LOGS, Operation, told
from tb_nanwatch.format.records import OperandStats

TOLD_ELSEWHERE: Final = LOGS | ROOTS | DOMAINS.keys()
TINY: Final = 1e-30  # with it, an ordinary numerator is within reach of the largest float32
REMEDIES: Final = ("guard_division", "safe_where", "clean_input")


def division_by_zero(case: Case) -> Cause | None:
    """Certain where the replay counted zeros in the denominator."""
    op = case.op
    below = denominator(op)
    if below is None:
        return None
    name = words.printable(op.name)
    if below.zero:
        above = op.operand(0) if op.name in ("RealDiv", "Div", "Xdivy") else None
        both = f", and the numerator {told(above)} holds zeros too: 0/0 is NaN" if above and above.zero else ""
        seen = f"the denominator of {name}, {told(below)}, holds {words.count(below.zero, 'exact zero')}{both}"
        evidence = (seen, *_unchanging(case, below))
        return Cause("division_by_zero", 0.7 if op.through_where else 0.9, evidence, REMEDIES)
    if 0 < below.min < TINY and op.overflowed:
        seen = f"the denominator of {name}, {told(below)}, is so close to 0 that the quotient overflows"
        return Cause("division_by_zero", 0.8, (seen,), REMEDIES)
    return None


def _unchanging(case: Case, below: OperandStats) -> tuple[str, ...]:
    """Constant columns of the input, where the denominator may be the deviation of each."""
    width = below.shape[-1] if below.shape else 0
    alike = [
        p
        for p in columns.parts_of(case.run)
        if p.constant and p.columns == width and below.zero % p.constant_count == 0
    ]
    return tuple(f"{columns.never_change(p)} in {words.place('input', p.name)}: their deviation is 0" for p in alike)


def denominator(op: Operation) -> OperandStats | None:
    """What an op divides by; None where it does not divide."""
    if op.name == "Pow" and not op.backward:
        base, exponent = op.operand(0), op.operand(1)
        return base if exponent is not None and exponent.max < 0 else None
    if op.name not in DIVISIONS:
        return None
    if op.backward and op.forward in TOLD_ELSEWHERE:
        return None  # the derivative of an op whose own rule tells of it
    return op.operand(0 if op.name in ("Reciprocal", "Inv", "Rsqrt") else 1)
