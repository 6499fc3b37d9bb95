"""Labels that the loss has no meaning for: a class that does not exist, a probability outside 0 to 1."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.batch import told as told_batch
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.ended import refused_label
from tb_nanwatch.diagnose.operation import LOGS, told

SPARSE: Final = "SparseSoftmaxCrossEntropyWithLogits"
DENSE: Final = "SoftmaxCrossEntropyWithLogits"


def label_invalid(case: Case) -> Cause | None:
    """Certain where the op itself was given, or refused, such a label."""
    op = case.op
    refused = refused_label(str(case.replay.get("error", "")))
    if op.name == SPARSE and refused:
        label, low, end = refused
        return _invalid(f"the loss was given the label {label}; the logits know the classes {low} to {end - 1} only")
    first, second = op.operand(0), op.operand(1)
    if op.name == SPARSE and first is not None and second is not None and first.shape:
        classes = first.shape[-1]
        if second.min < 0 or second.max >= classes:
            outside = second.max if second.max >= classes else second.min
            return _invalid(
                f"the loss was given the label {outside:.0f}; the logits know the classes 0 to {classes - 1} only"
            )
    if op.name == DENSE and second is not None and (second.min < 0 or second.max > 1):
        return _invalid(f"the labels {told(second)} are no probabilities: they must lie between 0 and 1")
    if op.name == SPARSE:
        return Cause(
            "label_invalid", 0.7, (f"{SPARSE} makes NaN of finite logits for invalid labels only",), ("clean_input",)
        )
    return _zero_in_log(case)


def _zero_in_log(case: Case) -> Cause | None:
    """A target that holds zeros for the first time, in the very batch in which a logarithm met a zero."""
    op = case.op
    operand = op.operand(0)
    if op.forward not in LOGS or case.incident.origin.phase not in ("loss", "backward") or operand is None:
        return None
    targets = [batch for batch in case.batch if batch.label]
    if any(batch.name == operand.name for batch in targets):
        return Cause("label_invalid", 0.6, (f"the logarithm is taken of the target {told(operand)}",), ("clean_input",))
    new = [batch for batch in targets if batch.new_zeros]
    if not new or not operand.zero:
        return None
    seen = f"{told_batch(new[0])} of this batch holds exact zeros; no batch measured before it did"
    return Cause("label_invalid", 0.5, (seen,), ("clean_input",))


def _invalid(seen: str) -> Cause:
    return Cause("label_invalid", 0.97, (words.printable(seen),), ("clean_input",))
