"""The derivative of a root, or of a power below 1, at exactly zero: infinite, or 0/0."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.operation import told

ROOTS: Final = frozenset({"Sqrt", "Rsqrt", "Pow", "Cbrt"})
GRADIENTS: Final = frozenset({"SqrtGrad", "RsqrtGrad"})


def sqrt_or_pow_gradient_at_zero(case: Case) -> Cause | None:
    """Certain where the replay counted zeros in what the gradient of the root was given."""
    op = case.op
    if not op.backward or op.through_where or not (op.forward in ROOTS or op.name in GRADIENTS):
        return None
    zeros = next((operand for operand in op.inputs if operand.zero), None)
    if zeros is None:
        return None
    forward = op.forward if op.forward in ROOTS else op.name.removesuffix("Grad")
    zeros_seen = words.count(zeros.zero, "exact zero")
    slope = "its slope at 0 is infinite, though its value there is not"
    evidence = [f"{zeros_seen} in {told(zeros)} at the gradient of {forward}: {slope}"]
    if str(case.replay.get("replay", "")).endswith("XLA only"):
        evidence.append("only the compiled step shows it: XLA computes 0/0 where TensorFlow's own kernel gives 0")
    return Cause("sqrt_or_pow_gradient_at_zero", 0.93, tuple(evidence), ("guard_division", "safe_where"))
