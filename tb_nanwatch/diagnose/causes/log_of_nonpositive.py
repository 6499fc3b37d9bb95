"""A logarithm of zero (minus infinity) or of a negative number (NaN)."""

from __future__ import annotations

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.operation import LOGS, told
from tb_nanwatch.format.records import OperandStats


def log_of_nonpositive(case: Case) -> Cause | None:
    """Certain where the replay counted the zeros and negatives that went in."""
    op = case.op
    if op.forward not in LOGS:
        return None
    operand = op.operand(1 if op.forward.startswith("Xlog") and not op.backward else 0)
    if operand is None:
        return None
    what = _what(op.forward, operand)
    if not what:
        return None
    made = "its derivative 1/x is infinite there" if op.backward else "the logarithm is -Infinity at 0 and NaN below"
    evidence = [f"{words.printable(op.forward)} received {what} in {told(operand)}: {made}"]
    squashed = operand.name.rpartition("/")[2]
    if operand.zero and squashed in ("Softmax", "Sigmoid"):
        evidence.append(
            f"the zeros come from {squashed}, which underflows where it is sure: about 104 below in float32"
        )
    return Cause(
        "log_of_nonpositive",
        0.7 if op.through_where else 0.95,
        tuple(evidence),
        _remedies(case, operand),
    )


def _what(name: str, operand: OperandStats) -> str:
    if name.endswith("1p"):
        return f"{words.magnitude(operand.min)}, and 1 + x must be above 0," if operand.min <= -1 else ""
    seen = [words.count(operand.zero, "exact zero")] if operand.zero else []
    seen += [words.count(operand.negative, "negative value")] if operand.negative else []
    return " and ".join(seen)


def _remedies(case: Case, operand: OperandStats) -> tuple[str, ...]:
    fed = case.replay.get("fed_by", {})
    if any(batch.name == operand.name for batch in case.batch) or (fed.get("inputs") and not fed.get("variables")):
        return ("clean_input", "clip_predictions_or_from_logits", "safe_where")
    if operand.negative:  # no rounding: nothing keeps that output positive
        return ("use_activation_or_normalization", "clip_predictions_or_from_logits")
    return ("clip_predictions_or_from_logits", "safe_where")
