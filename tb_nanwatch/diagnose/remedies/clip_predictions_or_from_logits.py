"""Arguments kept where the function is finite; or the loss from the logits, which never takes that logarithm."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.diagnose.operation import EXPONENTIALS, Operation, exponent_limit
from tb_nanwatch.diagnose.remedies.remedy import Advice, Patient, number
from tb_nanwatch.diagnose.rewrite import Guard, guarded_call, guarded_root

INSIDE: Final = "1 - 1e-6"  # float32 has steps of 6e-8 just below 1
UNBOUNDED: Final = ("Relu", "Softplus", "Exp", "Abs", "Square", "Sqrt", "Sum", "Mean")  # what they put out is no share


def clip_predictions_or_from_logits(patient: Patient) -> Advice:
    """The user's own line with bounds; for a loss of the library, the option or the bounds on the predictions."""
    op = patient.op
    if op.name in EXPONENTIALS:
        return _bounded(patient, "exp", "An exponential overflows; bounded, it stays finite and so does its gradient.")
    if op.forward in ("Acos", "Asin", "Atanh", "Erfinv"):
        return _bounded(patient, "acos", "Rounding takes values beyond the ends of the function; keep them inside.")
    if op.forward in ("Sqrt", "Rsqrt", "Pow"):
        return _bounded(patient, "sqrt", "Negative values have no root: keep the argument above 0.")
    why = (
        "Softmax and sigmoid round to exactly 0 or 1. Bounds of 1e-10 keep the logarithm finite; a loss that is given "
        "the logits computes log-probabilities without ever taking log(0)."
    )
    least = number(patient.value) if patient.value else "1e-06" if op.forward == "Log1p" else "1e-10"
    own = guarded_call(op.code, op.forward, lambda space, x: _guard(op, space, x, least))
    if own is not None:
        return Advice(why, _at(patient, own))
    if patient.style == "fit" and not op.code:
        return Advice(
            why,
            "y_pred = tf.clip_by_value(y_pred, 1e-10, 1.0)  # or a loss with from_logits=True and no softmax before it",
        )
    return Advice(
        why, "loss = tf.nn.softmax_cross_entropy_with_logits(labels, logits)  # or log(tf.clip_by_value(p, 1e-10, 1.0))"
    )


def _guard(op: Operation, space: str, x: str, least: str) -> str:
    if op.forward == "Log1p":
        return f"{space}.maximum({x}, {least} - 1)"
    operand = op.operand(0)
    unbounded = operand is not None and operand.name.rpartition("/")[2] in UNBOUNDED
    if operand is None or operand.max > 1 or unbounded:
        return f"{space}.maximum({x}, {least})"
    return f"tf.clip_by_value({x}, {least}, 1.0)" if space == "tf" else f"{space}.clip({x}, {least}, 1.0)"


def _bounded(patient: Patient, kind: str, why: str) -> Advice:
    op = patient.op
    operand = op.operand(0)
    top = number(exponent_limit(operand.dtype if operand else "float32") // 1 - 8)
    bounds: dict[str, Guard] = {
        "exp": lambda space, x: f"{space}.minimum({x}, {top})",
        "acos": lambda _, x: f"tf.clip_by_value({x}, -({INSIDE}), {INSIDE})",
        "sqrt": lambda space, x: f"{space}.maximum({x}, 1e-12)",
    }
    guard = bounds[kind]
    own = guarded_call(op.code, op.forward if kind != "exp" else op.name, guard)
    if own is None and kind == "sqrt":
        own = guarded_root(op.code, op.forward, "1e-12")
    return Advice(why, _at(patient, own or guard("tf", "x")))


def _at(patient: Patient, line: str) -> str:
    return f"# {patient.where}\n{line}" if patient.where else line
