"""Faults that an eager step does not show, because XLA computes the same op otherwise.

The gradient of a root at 0 is 0 in TensorFlow's own kernel and 0/0 under XLA. Each op of the kinds that are known to
differ is run once more, alone, compiled, on the inputs that it had.
"""

from __future__ import annotations

import time
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tb_nanwatch.record import own
from tb_nanwatch.record.replay.observe import BACKWARD, Node, Observation, state_of
from tb_nanwatch.record.replay.origin import Found

SECONDS: Final = 12.0  # compiling takes a tenth of a second for each kind of op
_SUSPECTS: Final = frozenset(
    [
        "SqrtGrad",
        "RsqrtGrad",
        "Sqrt",
        "Rsqrt",
        "Reciprocal",
        "ReciprocalGrad",
        "InvGrad",
        "RealDiv",
        "Div",
        "DivNoNan",
        "Pow",
        "Log",
        "Log1p",
        "Xlogy",
        "Xdivy",
        "Acos",
        "Asin",
        "Atanh",
        "Acosh",
        "TanhGrad",
        "SigmoidGrad",
        "SoftmaxCrossEntropyWithLogits",
        "SparseSoftmaxCrossEntropyWithLogits",
        "Exp",
        "Expm1",
        "FusedBatchNormGradV3",
        "FusedBatchNormV3",
        "Softplus",
        "SoftplusGrad",
        "EluGrad",
        "Softmax",
        "LogSoftmax",
    ]
)


def find(seen: Observation) -> Found | None:
    """The first op that is finite as it ran and not finite under XLA; None if there is none."""
    start, tried = time.monotonic(), set()
    for node in seen.nodes:
        if node.op_type not in _SUSPECTS or node.bad or node.nan_in or node.inf_in:
            continue
        key = (node.op_type, tuple(t.ref() if hasattr(t, "ref") else id(t) for t in node.inputs))
        if key in tried or time.monotonic() - start > SECONDS:
            continue
        tried.add(key)
        outputs = _compiled(node)
        if any(any(state_of(t)) for t in outputs):
            phase = "backward" if node.stage == BACKWARD else "forward" if node.inside else "loss"
            return Found(node, phase, frozenset(), outputs=tuple(outputs))
    return None


_functions: dict[Any, Any] = {}


def _compiled(node: Node) -> list[Any]:
    """Outputs of the op under XLA; empty where it cannot be run alone."""
    definition = op_def_registry.get(node.op_type)
    op = getattr(tf.raw_ops, node.op_type, None)
    if definition is None or op is None or len(definition.input_arg) != len(node.inputs):
        return []
    inferred = {a.type_attr for a in definition.input_arg} | {a.number_attr for a in definition.input_arg}
    attributes = {
        name: value
        for name, value in zip(node.attributes[::2], node.attributes[1::2], strict=False)
        if name not in inferred
    }
    key = (node.op_type, repr(attributes), tuple((t.dtype, tuple(t.shape)) for t in node.inputs))
    if key not in _functions:
        names = [a.name for a in definition.input_arg]
        _functions[key] = own.function(
            lambda *inputs: op(**dict(zip(names, inputs, strict=True)), **attributes), jit_compile=True
        )
    try:
        return list(tf.nest.flatten(_functions[key](*node.inputs)))
    except (tf.errors.OpError, TypeError, ValueError):
        return []
