"""A branch that tf.where threw away in the forward pass, and whose NaN comes back through the gradient."""

from __future__ import annotations

import re
from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.functions import FUNCTIONS
from tb_nanwatch.diagnose.operation import DIVISIONS, Operation, told

WHERE: Final = re.compile(r"\b(where|select|cond|switch)\w*\s*\(")
UNSELECTED: Final = "the branch was not selected, so the loss was finite"
UNSEEN: Final = "the loss was finite all the same: divided by, or selected against, they did not show"


def nan_gradient_through_where(case: Case) -> Cause | None:
    """The replay saw the bad value stay out of the loss and reach a gradient; or a gradient of 0 met a slope of Inf."""
    op = case.op
    seen_where = bool(WHERE.search(op.code)) or any(
        isinstance(node, dict) and str(node.get("op_type", "")).startswith("Select")
        for node in case.replay.get("graph", ())
    )
    if op.through_where:
        made = words.bad_elements(op.output)
        operand = f" from {told(op.inputs[0])}" if op.inputs else ""
        evidence = (
            f"{words.printable(op.name)} made {made or 'bad values'}{operand}",
            f"{UNSELECTED if seen_where else UNSEEN}; the gradient takes them times 0, and that is NaN",
        )
        return Cause("nan_gradient_through_where", 0.97 if seen_where else 0.8, evidence, _remedies(op))
    slope, incoming = op.operand(0), op.operand(1)
    if not op.backward or not seen_where or slope is None or incoming is None or not op.output.nan:
        return None
    if not slope.zero or incoming.zero < slope.zero:
        return None
    met = (
        f"{op.said()} was given a gradient of 0 where its slope is infinite ({words.count(slope.zero, 'exact zero')}): "
        "the branch was not selected, and 0 times infinity is NaN"
    )
    return Cause("nan_gradient_through_where", 0.95, (met,), _remedies(op))


def _remedies(op: Operation) -> tuple[str, ...]:
    """An epsilon where something is divided or a root taken; bounds for every function that has some."""
    kinds = {op.forward, op.name, op.name.removesuffix("Grad")}
    epsilon = ("guard_division",) if kinds & (DIVISIONS | {"Sqrt", "Rsqrt", "Pow"}) else ()
    bounds = ("clip_predictions_or_from_logits",) if op.forward in FUNCTIONS else ()
    return ("safe_where", *epsilon, *bounds)
