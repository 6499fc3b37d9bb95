"""A mean, a softmax or a quotient of sums over nothing: everything was masked away, or there was nothing."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.causes.division_by_zero import denominator
from tb_nanwatch.diagnose.operation import REDUCTIONS, SOFTMAXES, Operation, told
from tb_nanwatch.format.records import OperandStats

NAME: Final = "masked_or_empty_reduction"


def masked_or_empty_reduction(case: Case) -> Cause | None:
    """Certain for a softmax over -Infinity only and a mean of nothing; for 0/0 where the denominator is a sum."""
    op = case.op
    if not op.known:
        return None
    for rule in (_softmax, _empty, _quotient, _arithmetic_on_mask):
        cause = rule(op)
        if cause is not None:
            return cause
    return None


def _softmax(op: Operation) -> Cause | None:
    operand = op.operand(0)
    if op.name not in SOFTMAXES or operand is None or not operand.inf:
        return None
    rows = f", which is {words.count(op.output.nan // operand.shape[-1], 'whole row')}" if _whole(op, operand) else ""
    seen = (
        f"{op.name} received {words.count(operand.inf, 'masked value')} (-Infinity) in {told(operand)}",
        f"{words.count(op.output.nan, 'output')} became NaN{rows}: where every entry is masked, 0 is divided by 0",
    )
    return Cause(NAME, 0.95, seen, ("safe_where", "clean_input"))


def _whole(op: Operation, operand: OperandStats) -> bool:
    return bool(operand.shape) and operand.shape[-1] > 0 and op.output.nan % operand.shape[-1] == 0


def _empty(op: Operation) -> Cause | None:
    operand = op.operand(0)
    if op.name not in REDUCTIONS or operand is None or 0 not in operand.shape:
        return None
    shape = " x ".join(str(dim) for dim in operand.shape)
    seen = f"{op.name} ran over {words.printable(operand.name) or 'a tensor'} of shape {shape}: there was nothing in it"
    return Cause(NAME, 0.95, (seen,), ("guard_division", "safe_where", "clean_input"))


def _quotient(op: Operation) -> Cause | None:
    above, below = op.operand(0), denominator(op)
    if op.name not in ("RealDiv", "Div") or above is None or below is None or not (above.zero and below.zero):
        return None
    if not op.output.nan:
        return None
    kind = _producer(below)
    if kind not in REDUCTIONS and _producer(above) not in REDUCTIONS:
        return None
    # A sum or count below the line is a mean over a mask; a sum above it alone may be any quotient.
    what = "the denominator" if kind in REDUCTIONS else "the numerator"
    zeros = words.count(below.zero, "exact zero")
    seen = (
        f"{op.name} divided 0 by 0: {zeros} in the denominator {told(below)}, zeros in the numerator {told(above)} too",
        f"{what} is a sum or count, so nothing was selected to be summed",
    )
    return Cause(NAME, 0.95 if kind in REDUCTIONS else 0.4, seen, ("guard_division", "safe_where", "clean_input"))


def _arithmetic_on_mask(op: Operation) -> Cause | None:
    """-Inf minus -Inf and 0 times -Inf: infinities that went in were no accident, or they were the origin."""
    above, below = op.operand(0), op.operand(1)
    if above is None or below is None or not op.output.nan:
        return None
    if op.name == "Sub" and above.inf and below.inf:
        how = "one infinity was subtracted from another"
    elif op.name == "Mul" and ((above.inf and below.zero) or (above.zero and below.inf)):
        how = "a masked infinity was multiplied by 0"
    else:
        return None
    return Cause(NAME, 0.75, (f"{op.name} of {told(above)} and {told(below)}: {how}",), ("safe_where", "clean_input"))


def _producer(operand: OperandStats) -> str:
    return operand.name.rpartition("/")[2]
