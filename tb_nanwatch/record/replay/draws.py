"""New initial weights, drawn as each layer's activation asks for, from a generator of their own."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.record.naming import first_copy
from tb_nanwatch.record.replay.observe import FORWARD, Observation

_PRODUCTS: Final = frozenset(
    {"MatMul", "_FusedMatMul", "BatchMatMulV2", "Einsum", "Conv1D", "Conv2D", "Conv3D", "_FusedConv2D"}
)
_DEPTHWISE: Final = frozenset({"DepthwiseConv2dNative"})
_ACTIVATIONS: Final = frozenset(
    {"Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Sigmoid", "Tanh", "Softplus", "Softsign", "Softmax", "Erf"}
)
_PASSED: Final = frozenset(
    {
        "BiasAdd",
        "Add",
        "AddV2",
        "Reshape",
        "Identity",
        "Cast",
        "FusedBatchNormV3",
        "Mul",
        "Squeeze",
        "RealDiv",
        "Maximum",
    }
)
_RELUS: Final = frozenset({"Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Erf"})  # Erf: gelu
_OFTEN: Final = 3  # uses in a step from which a kernel is recurrent
_DEPTH: Final = 6  # ops between a product and its activation
SEED: Final = 7
AS_IT_WAS: Final = 2.0  # a deviation within that factor of the one wanted is no other initializer


@dataclass(frozen=True)
class Kernel:
    """A matrix or filter that a step multiplies with. activation: op type behind it, "" where there is none."""

    handle: int  # id
    activation: str
    recurrent: bool
    depthwise: bool = False


def kernels(seen: Observation) -> dict[int, Kernel]:
    """The kernels of an observed step by id of the variable's handle."""
    consumers: dict[int, list[Any]] = {}
    for node in seen.nodes:
        if node.stage == FORWARD:
            for tensor in node.inputs:
                consumers.setdefault(id(tensor), []).append(node)
    uses: Counter[int] = Counter()
    found: dict[int, Kernel] = {}
    for node in seen.nodes:
        if node.op_type not in _PRODUCTS | _DEPTHWISE or node.stage != FORWARD:
            continue
        for tensor in node.inputs:
            handle = _variable(seen, tensor)
            if handle is not None:
                uses[handle] += 1
                activation = _activation(consumers, node)
                found[handle] = Kernel(handle, activation, uses[handle] >= _OFTEN, node.op_type in _DEPTHWISE)
    return found


def drawn(kernel: Kernel, shape: tuple[int, ...], generator: np.random.Generator) -> tuple[NDArray[np.float32], str]:
    """(float32 values of `shape`, the initializer's name)."""
    receptive = int(np.prod(shape[:-2])) if len(shape) > 2 else 1
    fan_in, fan_out = receptive * shape[-2], receptive * shape[-1]
    if kernel.depthwise:
        fan_in = receptive
    if kernel.recurrent and len(shape) == 2:
        if kernel.activation in _RELUS and shape[0] == shape[1]:
            return np.eye(shape[0], dtype=np.float32), "identity"
        return _orthogonal(shape, generator), "orthogonal"
    if kernel.activation in _RELUS:
        return _truncated(shape, float(np.sqrt(2 / fan_in)), generator), "he_normal"
    limit = float(np.sqrt(6 / (fan_in + fan_out)))
    return generator.uniform(-limit, limit, shape).astype(np.float32), "glorot_uniform"


def truncated(shape: tuple[int, ...], deviation: float, generator: np.random.Generator) -> NDArray[np.float32]:
    """A truncated normal draw, as many a transformer starts from with a deviation of 0.02."""
    return _truncated(shape, deviation, generator)


def deviation(kernel: Kernel, shape: tuple[int, ...]) -> float:
    """Standard deviation of what `drawn` gives; that of an orthogonal matrix is as of its size."""
    values, _ = drawn(kernel, shape, np.random.default_rng(SEED))
    return float(values.std())


def _truncated(shape: tuple[int, ...], deviation: float, generator: np.random.Generator) -> NDArray[np.float32]:
    values = generator.normal(size=shape)
    while (beyond := np.abs(values) > 2).any():
        values[beyond] = generator.normal(size=int(beyond.sum()))
    return (values * deviation / 0.8796).astype(np.float32)  # what is left of a deviation of 1 within 2


def _orthogonal(shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[np.float32]:
    rows, columns = shape
    parts = [np.linalg.qr(generator.normal(size=(rows, rows)))[0] for _ in range(-(-columns // rows))]
    return np.concatenate(parts, axis=1)[:, :columns].astype(np.float32)


def _variable(seen: Observation, tensor: Any) -> int | None:
    """Id of the handle, in the first replica, whose value `tensor` is, cast or not."""
    for _ in range(4):
        made = seen.producers.get(id(tensor))
        if made is None or not made.inputs:
            return None
        if made.op_type == "ReadVariableOp":
            return id(first_copy(made.inputs[0]))
        if made.op_type not in ("Cast", "Identity", "Reshape"):
            return None
        tensor = made.inputs[0]
    return None


def _activation(consumers: dict[int, list[Any]], node: Any) -> str:
    waiting = deque([(node, 0)])
    while waiting:
        made, depth = waiting.popleft()
        for tensor in made.outputs:
            for after in consumers.get(id(tensor), ()):
                if after.op_type in _ACTIVATIONS:
                    return str(after.op_type)
                if after.op_type in _PASSED and depth < _DEPTH:
                    waiting.append((after, depth + 1))
    return ""
