"""Arguments kept where the function is finite; or the loss from the logits, which never takes that logarithm."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.functions import FUNCTIONS, INSIDE, Function, top
from tb_nanwatch.diagnose.operation import EXPONENTIALS, Operation
from tb_nanwatch.diagnose.remedies.remedy import FIT, Advice, Patient, described, exponent, number
from tb_nanwatch.diagnose.rewrite import guarded_call, guarded_root, kept

ROOTS: Final = ("Sqrt", "Rsqrt", "Pow")
UNBOUNDED: Final = ("Relu", "Softplus", "Exp", "Abs", "Square", "Sqrt", "Sum", "Mean")  # what they put out is no share


def clip_predictions_or_from_logits(patient: Patient) -> Advice:
    """The user's own line with bounds; for a loss of the library, the option or the bounds on the predictions."""
    op = patient.op
    kind = op.name if op.name in EXPONENTIALS else op.forward
    function = FUNCTIONS.get(kind)
    if function is not None and kind != "Log":
        return _bounded(patient, kind, function)
    why = (
        "Softmax and sigmoid round to exactly 0 or 1. Bounds of 1e-10 keep the logarithm finite; a loss that is given "
        "the logits computes log-probabilities without ever taking log(0)."
    )
    least = number(patient.value) if patient.value else FUNCTIONS["Log"].low
    own = guarded_call(op.code, "Log", lambda space, x: _share(op, space, x, least))
    if own is not None:
        return Advice(why, _at(patient, own))
    if patient.style == FIT and not op.code:
        return Advice(
            why,
            "y_pred = tf.clip_by_value(y_pred, 1e-10, 1.0)  # or a loss with from_logits=True and no softmax before it",
        )
    loss = "loss = tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)"
    return Advice(why, f"{loss}  # or log(tf.clip_by_value(p, 1e-10, 1.0))")


def _share(op: Operation, space: str, x: str, least: str) -> str:
    operand = op.operand(0)
    unbounded = operand is not None and operand.name.rpartition("/")[2] in UNBOUNDED
    if operand is None or operand.max > 1 or unbounded:
        return f"{space}.maximum({x}, {least})"
    return f"tf.clip_by_value({x}, {least}, 1.0)" if space == "tf" else f"{space}.clip({x}, {least}, 1.0)"


def _bounded(patient: Patient, kind: str, function: Function) -> Advice:
    op = patient.op
    low = number(patient.value) if patient.value and kind not in EXPONENTIALS else function.low

    def guard(space: str, x: str) -> str:
        return function.bounded.format(space=space, x=x, low=low, top=top(op.dtype))

    own = guarded_call(op.code, kind, guard)
    if own is None and kind in ROOTS:
        own = guarded_root(op.code, kind, low)
    if own is None:
        x = described(op.operand(function.argument))
        own = kept(op.code, "result") + function.call.format(x=guard("tf", x), y=exponent(op))
    return Advice(_why(kind, function, op.backward), _at(patient, own))


def _why(kind: str, function: Function, backward: bool) -> str:
    if kind in EXPONENTIALS:
        return "An exponential overflows; bounded, it stays finite and so does its gradient."
    if kind in ROOTS and backward:
        return "The slope of a root at 0 is infinite: keep the argument above 0."
    if kind in ROOTS:
        return "Negative values have no root: keep the argument above 0."
    if INSIDE in function.bounded:
        return "Rounding takes values beyond the ends of the function; keep them inside."
    return f"{words.printable(kind)} is not finite outside of its domain, nor its slope at the edge: stay inside."


def _at(patient: Patient, line: str) -> str:
    return f"# {patient.where}\n{line}" if patient.where else line
