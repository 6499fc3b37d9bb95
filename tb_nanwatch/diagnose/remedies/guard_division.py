"""A division, or a root, that cannot meet zero."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.diagnose.operation import DIVISIONS
from tb_nanwatch.diagnose.remedies.remedy import Advice, Patient, described
from tb_nanwatch.diagnose.rewrite import guarded_call, safe_division

EPSILON: Final = "1e-12"
ROOTS: Final = ("Sqrt", "Rsqrt", "Pow")


def guard_division(patient: Patient) -> Advice:
    """The user's own line with an epsilon inside the root, or with a division that is 0 where its denominator is."""
    op = patient.op
    root = op.forward in ROOTS or op.name in ("SqrtGrad", "RsqrtGrad")
    if root:
        return _root(patient, op.forward if op.forward in ROOTS else op.name.removesuffix("Grad"))
    why = "0/0 is NaN and x/0 is infinite: say what the quotient shall be where the denominator is 0."
    own = safe_division(op.code) if op.name in DIVISIONS or op.forward in DIVISIONS else None
    return Advice(why, _at(patient, own or "ratio = tf.math.divide_no_nan(numerator, denominator)"))


def _root(patient: Patient, root: str) -> Advice:
    why = (
        "The slope of a root at 0 is infinite. A small constant inside it bounds the slope; one outside, added to the "
        "root, protects the value only."
    )
    own = guarded_call(patient.op.code, root, lambda space, x: f"{space}.maximum({x}, {EPSILON})")
    if own is None and "reduce_std" in patient.op.code:
        own = patient.op.code.replace("reduce_std(", "sqrt(tf.math.reduce_variance(", 1).rstrip() + f" + {EPSILON})"
    if own is None:
        x = described(patient.op.operand(0))
        own = f"tf.{root.lower() if root != 'Rsqrt' else 'math.rsqrt'}(tf.maximum({x}, {EPSILON}))"
    return Advice(why, _at(patient, own))


def _at(patient: Patient, line: str) -> str:
    return f"# {patient.where}\n{line}" if patient.where else line
