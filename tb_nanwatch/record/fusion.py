"""Which tensors may be read without changing what is computed.

Grappler fuses a matrix product or convolution with the bias, normalization, addition or activation behind it, and a
fused kernel can give other bits: oneDNN's fused relu turns NaN into 0. An op is fused only while nobody else
reads what lies between, so reading such a tensor would undo the fusion and with it the training's exact result. The
replay sees those tensors; the recorder leaves them alone.
"""

from __future__ import annotations

from typing import Any, Final

_ACTIVATIONS: Final = frozenset(
    "Relu Relu6 Elu LeakyRelu Selu Sigmoid Tanh Softplus Erf Erfc Maximum Minimum Mul".split()
)
_NORMALIZATIONS: Final = frozenset("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3".split())
_SUMS: Final = frozenset("BiasAdd BiasAddV1 Add AddV2 AddN".split())
_CONVOLUTIONS: Final = frozenset("Conv2D Conv3D DepthwiseConv2dNative _FusedConv2D".split())

#: op that makes a tensor -> ops behind it with which Grappler may fuse or merge it
_FUSED_WITH: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(_CONVOLUTIONS, _SUMS | _NORMALIZATIONS | _ACTIVATIONS),
    **dict.fromkeys(("MatMul",), _SUMS | (_ACTIVATIONS - {"Mul"})),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), frozenset({"Mul", "BiasAdd"})),
    **dict.fromkeys(_SUMS, _ACTIVATIONS | {"Add", "AddV2", "AddN"}),
    **dict.fromkeys(_NORMALIZATIONS, _ACTIVATIONS | _SUMS),
    "Mul": _SUMS,
    "Sigmoid": frozenset({"Mul"}),
    "Tanh": frozenset({"Mul"}),
    "Softplus": frozenset({"Tanh"}),
    "Pad": _CONVOLUTIONS,
}
_RESHAPES: Final = frozenset("Identity Reshape Squeeze ExpandDims StopGradient".split())


def readable(tensor: Any) -> bool:
    """False if something behind this graph tensor might be fused with the op that makes it."""
    source = tensor
    while source.op.type in _RESHAPES and source.op.inputs:
        source = source.op.inputs[0]
    tails = _FUSED_WITH.get(source.op.type)
    return tails is None or not any(op.type in tails for op in _consumers(source))


def _consumers(tensor: Any) -> list[Any]:
    """Ops that read a tensor, looking through those that only rename or reshape it."""
    found = []
    for op in tensor.consumers():
        if op.type in _RESHAPES:
            found += _consumers(op.outputs[0])
        else:
            found.append(op)
    return found
