"""A root of a negative number, an arc cosine beyond 1, the factor of a matrix that is not positive definite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.operation import Operation, told
from tb_nanwatch.format.records import OperandStats

INFINITY: Final = float("inf")
ROUNDING: Final = 1e-3  # of the range: a variance computed as a difference may come out that much below 0


@dataclass(frozen=True)
class Domain:
    """Where a function is defined; with `edges`, where its slope is finite is the open interval."""

    low: float
    high: float
    edges: bool


DOMAINS: Final = {
    "Sqrt": Domain(0, INFINITY, False),
    "Rsqrt": Domain(0, INFINITY, False),
    "Pow": Domain(0, INFINITY, False),
    "Acos": Domain(-1, 1, True),
    "Asin": Domain(-1, 1, True),
    "Atanh": Domain(-1, 1, True),
    "Acosh": Domain(1, INFINITY, True),
    "Erfinv": Domain(-1, 1, True),
    "Ndtri": Domain(0, 1, True),
    "Lgamma": Domain(0, INFINITY, True),
    "Digamma": Domain(0, INFINITY, True),
}


def domain_error(case: Case) -> Cause | None:
    """Certain where the replay saw the range of what went in."""
    op = case.op
    domain, operand = DOMAINS.get(op.forward), op.operand(0)
    if op.name == "Cholesky" and operand is not None:
        return _not_definite(operand)
    if domain is None or operand is None:
        return None
    outside = operand.min < domain.low or operand.max > domain.high
    at_edge = domain.edges and (operand.min == domain.low or operand.max == domain.high)
    own = not op.backward or op.name == op.forward or op.through_where
    if own and (outside or at_edge):
        bounds = f"{words.magnitude(domain.low)} to {words.magnitude(domain.high)}"
        excluded = " (bounds excluded)" if at_edge else ""
        seen = f"{words.printable(op.forward)} is defined for {bounds}{excluded}; it received {told(operand)}"
    elif op.backward and domain.edges:
        seen = (
            f"the slope of {words.printable(op.forward)} is infinite at the ends of its domain, where its input stood"
        )
    else:
        return None
    return Cause("domain_error", 0.7 if op.through_where else 0.94, (seen,), _remedies(op, operand))


def _not_definite(operand: OperandStats) -> Cause | None:
    if operand.nan or operand.inf:
        return None
    seen = (
        f"Cholesky is defined for positive definite matrices; it received {told(operand)}, "
        "which it could not factor: rows that are the same, or nearly, make a matrix singular"
    )
    return Cause("domain_error", 0.9, (seen,), ("guard_division", "clean_input"))


def _remedies(op: Operation, operand: OperandStats) -> tuple[str, ...]:
    kept_inside = ("clip_predictions_or_from_logits", "safe_where")
    if op.forward not in ("Sqrt", "Rsqrt", "Pow"):  # no constant inside an arc cosine makes it one of more than 1
        return kept_inside
    rounded = -operand.min <= ROUNDING * max(operand.max, 1.0)
    return ("guard_division", *kept_inside) if rounded else (*kept_inside, "guard_division")
