"""A division, or a root, that cannot meet zero."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.diagnose.functions import FUNCTIONS
from tb_nanwatch.diagnose.operation import DIVISIONS
from tb_nanwatch.diagnose.remedies.remedy import FIT, GRAPH, Advice, Patient, described, exponent, number
from tb_nanwatch.diagnose.rewrite import definite, guarded_root, kept, none_of_nothing, safe_division, safe_reciprocal

EPSILON: Final = "1e-12"
JITTER: Final = "1e-5"  # more than float32 loses in a matrix of ordinary size
ROOTS: Final = ("Sqrt", "Rsqrt", "Pow")
QUOTIENT: Final = "tf.math.divide_no_nan(numerator, denominator)"
_NOT_ZERO: Final = "tf.where(tf.equal(denominator, 0), tf.ones_like(denominator), denominator)"
QUOTIENTS: Final = {
    "Reciprocal": "tf.math.reciprocal_no_nan(denominator)",
    "Inv": "tf.math.reciprocal_no_nan(denominator)",
    "Mod": f"tf.math.floormod(numerator, {_NOT_ZERO})",
    "FloorMod": f"tf.math.floormod(numerator, {_NOT_ZERO})",
    "FloorDiv": f"tf.math.floordiv(numerator, {_NOT_ZERO})",
    "Xdivy": f"tf.math.xdivy(numerator, {_NOT_ZERO})",
}
EMPTY: Final = {"Mean": "reduce_mean", "Max": "reduce_max", "Min": "reduce_min"}


def guard_division(patient: Patient) -> Advice:
    """The user's own line with an epsilon inside the root, or with a division that is 0 where its denominator is."""
    op = patient.op
    if patient.phase == "update" and op.name in DIVISIONS and "/" not in op.code:  # else the program's own division
        return _optimizer(patient)
    if op.name in EMPTY:
        return _nothing(patient)
    root = op.forward in ROOTS or op.name in ("SqrtGrad", "RsqrtGrad")
    if root:
        return _root(patient, op.forward if op.forward in ROOTS else op.name.removesuffix("Grad"))
    if op.forward == "Cholesky":
        return _matrix(patient)
    why = "0/0 is NaN and x/0 is infinite: say what the quotient shall be where the denominator is 0."
    kind = op.forward if op.forward in DIVISIONS else op.name
    own = (safe_division(op.code) or safe_reciprocal(op.code)) if kind in DIVISIONS else None
    return Advice(why, _at(patient, own or f"{kept(op.code, 'ratio')}{QUOTIENTS.get(kind, QUOTIENT)}"))


def _root(patient: Patient, root: str) -> Advice:
    why = (
        "The slope of a root at 0 is infinite. A small constant inside it bounds the slope; one outside, added to the "
        "root, protects the value only."
    )
    epsilon = number(patient.value) if patient.value else EPSILON
    own = guarded_root(patient.op.code, root, epsilon)
    if own is None:
        x = f"tf.maximum({described(patient.op.operand(0))}, {epsilon})"
        own = kept(patient.op.code, "root") + FUNCTIONS[root].call.format(x=x, y=exponent(patient.op))
    return Advice(why, _at(patient, own))


def _matrix(patient: Patient) -> Advice:
    why = (
        "A matrix with rows that are the same, or nearly, is positive definite but for rounding: a small constant on "
        "its diagonal makes up for that. Rows that come twice can be left out of the batch instead."
    )
    epsilon = number(patient.value) if patient.value else JITTER
    x = described(patient.op.operand(0))
    own = definite(patient.op.code, epsilon) or (
        f"{kept(patient.op.code, 'factor')}tf.linalg.cholesky({x} + {epsilon} * tf.eye(tf.shape({x})[-1]))"
    )
    return Advice(why, _at(patient, own))


def _optimizer(patient: Patient) -> Advice:
    why = (
        "The optimizer divides by the root of the squared gradients: for a weight whose gradient has always been 0, or "
        "underflowed, only its epsilon keeps that from being 0."
    )
    epsilon = number(patient.value or 1e-7)
    if patient.style == GRAPH:
        return Advice(why, f"optimizer = tf.compat.v1.train.AdamOptimizer(learning_rate, epsilon={epsilon})")
    name = "model.optimizer" if patient.style == FIT else "optimizer"
    when = "  # after model.compile(...), before fit" if patient.style == FIT else "  # before the first step"
    return Advice(why, f"{name}.epsilon = {epsilon}{when}")


def _nothing(patient: Patient) -> Advice:
    why = "The mean of nothing is 0/0, the largest of nothing is -Infinity: say what they shall be, 0 for example."
    own = none_of_nothing(patient.op.code, patient.op.name)
    call = EMPTY[patient.op.name]
    return Advice(why, _at(patient, own or f"value = tf.where(tf.size(x) > 0, tf.{call}(x), 0.0)"))


def _at(patient: Patient, line: str) -> str:
    return f"# {patient.where}\n{line}" if patient.where else line
