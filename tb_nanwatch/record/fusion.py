"""Which tensors may be read without changing what is computed.

Grappler fuses a matrix product or convolution with the bias, normalization, addition or activation behind it, and a
fused kernel can give other bits: oneDNN's fused relu turns NaN into 0. An op is fused only while nobody else
reads what lies between, so reading such a tensor would undo the fusion and with it the training's exact result. The
replay sees those tensors; the recorder leaves them alone.
"""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

_ACTIVATIONS: Final = frozenset(
    [
        "Relu",
        "Relu6",
        "Elu",
        "LeakyRelu",
        "Selu",
        "Sigmoid",
        "Tanh",
        "Softplus",
        "Erf",
        "Erfc",
        "Maximum",
        "Minimum",
        "Mul",
    ]
)
_NORMALIZATIONS: Final = frozenset(["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"])
_SUMS: Final = frozenset(["BiasAdd", "BiasAddV1", "Add", "AddV2", "AddN"])
_CONVOLUTIONS: Final = frozenset(["Conv2D", "Conv3D", "DepthwiseConv2dNative", "_FusedConv2D"])

_GIVEN: Final = frozenset(["Const", "ReadVariableOp", "Rsqrt"])  # factors that are no activation of the other one
DEEPEST: Final = 4  # products of products that are made again

#: op that makes a tensor -> ops behind it with which Grappler may fuse or merge it
_FUSED_WITH: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(_CONVOLUTIONS, _SUMS | _NORMALIZATIONS | _ACTIVATIONS),
    **dict.fromkeys(("MatMul",), _SUMS | (_ACTIVATIONS - {"Mul"})),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), frozenset({"Mul", "BiasAdd"})),
    **dict.fromkeys(_SUMS, _ACTIVATIONS | {"Add", "AddV2", "AddN"}),
    **dict.fromkeys(_NORMALIZATIONS, _ACTIVATIONS | _SUMS),
    "Mul": _SUMS | {"Mul"},
    "Sigmoid": frozenset({"Mul"}),
    "Tanh": frozenset({"Mul"}),
    "Softplus": frozenset({"Tanh"}),
    "Pad": _CONVOLUTIONS,
}
_RESHAPES: Final = frozenset(["Identity", "Reshape", "Squeeze", "ExpandDims", "StopGradient"])


_CONTRACTIONS: Final = frozenset(
    [
        "MatMul",
        "BatchMatMul",
        "BatchMatMulV2",
        "BatchMatMulV3",
        "Einsum",
        "XlaDotV2",
        "Conv2D",
        "Conv3D",
        "DepthwiseConv2dNative",
        "Conv2DBackpropFilter",
        "Conv2DBackpropInput",
        "Conv3DBackpropFilterV2",
        "Conv3DBackpropInputV2",
        "DepthwiseConv2dNativeBackpropFilter",
        "DepthwiseConv2dNativeBackpropInput",
    ]
)


def readable(tensor: Any, compiled: bool) -> bool:
    """Whether reading this graph tensor leaves every other result as it is; `compiled` says for XLA."""
    return _stored_by_xla(tensor) if compiled else _read_after_fusion(tensor)


def to_read(tensor: Any, compiled: bool) -> Any | None:
    """What to read for this graph tensor: itself, or what gives the same numbers; None for nothing.

    That is what was cast to it, as mixed precision does, or the same product made once more, as of a clipped gradient.
    """
    if readable(tensor, compiled):
        return tensor
    source = _origin(tensor)
    if not compiled and source.op.type == "Mul":
        return _multiplied_again(*source.op.inputs) if source.dtype.is_floating else None
    if compiled and source.op.type == "Cast" and source.op.inputs[0].dtype.is_floating:
        return source.op.inputs[0] if _origin(source.op.inputs[0]).op.type in _CONTRACTIONS else None
    return None


def _stored_by_xla(tensor: Any) -> bool:
    """Whether XLA puts a tensor into memory anyhow: contractions write their result and read their operands there.

    Everything else it fuses as it likes, and a sum inside a fusion runs in another order than one that stands alone.
    """
    source = _origin(tensor)
    return source.op.type in _CONTRACTIONS or any(op.type in _CONTRACTIONS for op in _consumers(source))


def _read_after_fusion(tensor: Any) -> bool:
    """False if Grappler might fuse something behind this tensor with the op that makes it."""
    source = _origin(tensor)
    tails = _FUSED_WITH.get(source.op.type, frozenset())
    return not any(op.type in tails and _merges(source, op) for op in _consumers(source))


def _merges(source: Any, behind: Any) -> bool:
    """Whether Grappler may really do that to this pair, whose types would allow it."""
    if behind.type in ("Maximum", "Minimum"):  # a leaky relu compares with a multiple of itself; constants clip
        return any(_origin(t).op.type != "Const" for t in behind.inputs if _origin(t) is not source)
    if source.op.type == behind.type == "Mul":  # products are put into another order where that spares broadcasting
        shapes = {tuple(t.shape) if t.shape.is_fully_defined() else None for t in (*source.op.inputs, *behind.inputs)}
        return None in shapes or len(shapes) > 1
    if behind.type == "Mul" and source.op.type in _SUMS:  # x * sigmoid(x) is one kernel; a multiple of a sum is not
        others = [t for t in behind.inputs if _origin(t) is not source]
        return any(t.shape.rank != 0 and _origin(t).op.type not in _GIVEN for t in others)
    return True


def _multiplied_again(one: Any, other: Any, depth: int = DEEPEST) -> Any | None:
    """The same product by other ops: Grappler would take a second Mul for the one that is there.

    In the next wider type a product is exact, so that rounding it gives the same number.
    """
    one, other = _factor(one, depth), _factor(other, depth)
    if one is None or other is None:
        return None
    if one.dtype == tf.float64:
        return one / tf.math.reciprocal(other)
    wider = tf.float64 if one.dtype == tf.float32 else tf.float32
    return tf.cast(tf.cast(one, wider) * tf.cast(other, wider), one.dtype)


def _factor(tensor: Any, depth: int) -> Any | None:
    if tensor.shape.rank == 0 or _read_after_fusion(tensor):
        return tensor
    source = _origin(tensor)
    if source.op.type != "Mul" or depth == 0:
        return None
    left, right = source.op.inputs
    product = _multiplied_again(left, right, depth - 1)
    return None if product is None else tf.reshape(product, tf.shape(tensor))


def _origin(tensor: Any) -> Any:
    """The tensor that this one only renames or reshapes."""
    while tensor.op.inputs and (tensor.op.type in _RESHAPES or tensor.op.type == "IdentityN"):
        tensor = tensor.op.inputs[tensor.value_index if tensor.op.type == "IdentityN" else 0]
    return tensor


def _consumers(tensor: Any) -> list[Any]:
    """Ops that read a tensor, looking through those that only rename or reshape it."""
    found = []
    for op in tensor.consumers():
        if op.type in _RESHAPES:
            found += _consumers(op.outputs[0])
        elif op.type == "IdentityN":  # of functions with a gradient of their own
            found += [c for t, out in zip(op.inputs, op.outputs, strict=True) if t is tensor for c in _consumers(out)]
        else:
            found.append(op)
    return found


def in_xla() -> bool:
    """Whether the graph being traced will be compiled by XLA."""
    if tf.executing_eagerly():
        return False
    from tensorflow.python.ops import control_flow_util

    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))
