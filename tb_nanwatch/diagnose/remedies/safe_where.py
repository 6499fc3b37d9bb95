"""The guard inside the function instead of around it: a bad branch that is not chosen still has a gradient."""

from __future__ import annotations

from tb_nanwatch.diagnose.functions import FUNCTIONS
from tb_nanwatch.diagnose.operation import DIVISIONS, SOFTMAXES, Operation, exponent_limit
from tb_nanwatch.diagnose.remedies.remedy import Advice, Patient, described, exponent
from tb_nanwatch.diagnose.rewrite import guarded_call, kept, where_inside


def safe_where(patient: Patient) -> Advice:
    """Lines for the op at hand: first a harmless argument, then the function of it."""
    op = patient.op
    if op.name in SOFTMAXES:
        return _softmax(patient)
    why = (
        "tf.where picks a value, but the gradient passes through both branches: 0 times infinity is NaN. Give the "
        "function a harmless argument where its result is not wanted."
    )
    lines = _division(op) if op.forward in DIVISIONS and op.forward not in FUNCTIONS else _function(op)
    return Advice(why, "\n".join(([f"# {patient.where}"] if patient.where else []) + lines))


def _softmax(patient: Patient) -> Advice:
    why = (
        "Where every entry is -Infinity softmax divides 0 by 0; with the smallest finite number as mask it gives equal "
        "shares."
    )
    own = guarded_call(patient.op.code, patient.op.name, lambda _, x: f"tf.maximum({x}, {_whole(x)}.dtype.min)")
    line = own or f"{kept(patient.op.code, 'weights')}tf.nn.softmax(tf.maximum(scores, scores.dtype.min), axis=-1)"
    return Advice(why, f"# {patient.where}\n{line}" if patient.where else line)


def _whole(x: str) -> str:
    return x if x.isidentifier() else f"({x})"


def _division(op: Operation) -> list[str]:
    own = where_inside(op.code, op.forward, "tf.not_equal({x}, 0)", "ones", divides=True)
    if own is not None:
        return [own]
    return [
        "safe = tf.where(tf.equal(denominator, 0), tf.ones_like(denominator), denominator)",
        f"{kept(op.code, 'ratio')}tf.where(tf.equal(denominator, 0), tf.zeros_like(safe), numerator / safe)",
    ]


def _function(op: Operation) -> list[str]:
    kind = op.forward if op.forward in FUNCTIONS else op.name if op.name in FUNCTIONS else "Sqrt"
    function, operand = FUNCTIONS[kind], op.operand(0)
    limit = int(exponent_limit(operand.dtype if operand is not None else "float32")) - 1
    valid = function.valid.replace("{top}", str(limit))
    own = where_inside(op.code, kind, valid, function.harmless)
    if own is not None:
        return [own]
    x = described(op.operand(function.argument))
    condition = valid.format(x=x)
    value = function.call.format(x="safe", y=exponent(op))
    return [
        f"safe = tf.where({condition}, {x}, {function.harmless.format(x=x)})",
        f"{kept(op.code, 'result')}tf.where({condition}, {value}, tf.zeros_like(safe))",
    ]
