"""The guard inside the function instead of around it: a bad branch that is not chosen still has a gradient."""

from __future__ import annotations

from tb_nanwatch.diagnose.operation import DIVISIONS, EXPONENTIALS, SOFTMAXES, Operation, exponent_limit
from tb_nanwatch.diagnose.remedies.remedy import Advice, Patient
from tb_nanwatch.diagnose.rewrite import argument, fraction, guarded_call


def safe_where(patient: Patient) -> Advice:
    """Lines for the op at hand: first a harmless argument, then the function of it."""
    op = patient.op
    if op.name in SOFTMAXES:
        return _softmax(patient)
    why = (
        "tf.where picks a value, but the gradient passes through both branches: 0 times infinity is NaN. Give the "
        "function a harmless argument where its result is not wanted."
    )
    lines = _division(op) if op.forward in DIVISIONS or op.name in DIVISIONS else _function(op)
    return Advice(why, "\n".join(([f"# {patient.where}"] if patient.where else []) + lines))


def _softmax(patient: Patient) -> Advice:
    why = (
        "Where every entry is -Infinity softmax divides 0 by 0; with the smallest finite number as mask it gives equal "
        "shares."
    )
    own = guarded_call(patient.op.code, patient.op.name, lambda _, x: f"tf.maximum({x}, {x}.dtype.min)")
    line = own or "weights = tf.nn.softmax(tf.maximum(scores, scores.dtype.min), axis=-1)"
    return Advice(why, f"# {patient.where}\n{line}" if patient.where else line)


def _division(op: Operation) -> list[str]:
    above, below = fraction(op.code) or ("numerator", "denominator")
    above = above if above.isidentifier() else f"({above})"
    first = [] if below.isidentifier() else [f"below = {below}"]
    name = below if below.isidentifier() else "below"
    return [
        *first,
        f"safe = tf.where(tf.equal({name}, 0), tf.ones_like({name}), {name})",
        f"ratio = tf.where(tf.equal({name}, 0), tf.zeros_like(safe), {above} / safe)",
    ]


def _function(op: Operation) -> list[str]:
    own = argument(op.code, op.forward)
    x = own if own is not None and own.isidentifier() else "x"
    first = [] if own is None or own == x else [f"x = {own}"]
    valid = f"{x} > 0"
    if op.forward in ("Acos", "Asin", "Atanh"):
        valid = f"tf.abs({x}) < 1"
    elif op.forward in EXPONENTIALS:
        operand = op.operand(0)
        limit = int(exponent_limit(operand.dtype if operand is not None else "float32")) - 1
        valid = f"{x} < {limit}" if op.forward.startswith("Exp") else f"tf.abs({x}) < {limit}"
    harmless = f"tf.ones_like({x})" if valid == f"{x} > 0" else f"tf.zeros_like({x})"
    line = guarded_call(op.code, op.forward, lambda _, __: "safe")
    if line is None or "where(" not in line:
        name = {"Log": "math.log", "Log1p": "math.log1p", "Pow": "pow", "Rsqrt": "math.rsqrt"}.get(
            op.forward, op.forward.lower() or "sqrt"
        )
        line = f"result = tf.where({valid}, tf.{name}(safe), tf.zeros_like(safe))"
    return [*first, f"safe = tf.where({valid}, {x}, {harmless})", line]
