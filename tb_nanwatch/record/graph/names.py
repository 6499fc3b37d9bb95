"""Names of what a graph holds: variables by their scope, their gradients, and what each layer puts out.

A layer is the variable scope that holds variables. Its output is found by following what its variables flow into: past
the product and the bias, up to the activation behind them. Nothing hangs on the names of the ops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import tensorflow as tf

from tb_nanwatch.record import kernels
from tb_nanwatch.record.collect import Seen
from tb_nanwatch.record.graph import walk
from tb_nanwatch.record.naming import NamedVariable

_BEHIND: Final = frozenset(
    [
        "Relu",
        "Relu6",
        "Elu",
        "Selu",
        "LeakyRelu",
        "Sigmoid",
        "Tanh",
        "Softplus",
        "Softsign",
        "Softmax",
        "LogSoftmax",
        "Identity",
        "Reshape",
        "Squeeze",
    ]
)
#: Those that are activations, as a Keras program calls them.
_FUNCTIONS: Final = {
    "Relu": "relu",
    "Relu6": "relu6",
    "Elu": "elu",
    "Selu": "selu",
    "LeakyRelu": "leaky_relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Softmax": "softmax",
}
_AVERAGING: Final = frozenset(["AssignSub", "AssignSubVariableOp"])  # what a moving average is moved by
_SUMS: Final = frozenset(["BiasAdd", "BiasAddV1", "Add", "AddV2"])


def variables(graph: Any, trained: Iterable[Any] = ()) -> list[NamedVariable]:
    """Variables to watch: those in `trained`, all trainable ones, what lies beside them, and moving averages.

    What an optimizer keeps lies elsewhere, below the variable that it belongs to, and is not among them.
    """
    keys = tf.compat.v1.GraphKeys
    trainable = {v.op: v for v in [*graph.get_collection(keys.TRAINABLE_VARIABLES), *trained]}
    scopes = {_scope(op.name) for op in trainable}
    averages = {walk.home(op.inputs[0]) for op in graph.get_operations() if op.type in _AVERAGING}
    found = dict(trainable)
    for v in graph.get_collection(keys.GLOBAL_VARIABLES):
        kept = v.op in averages and not any(v.op.name.startswith(f"{op.name}/") for op in trainable)
        if v.shape.rank and (kept or _scope(v.op.name) in scopes):
            found.setdefault(v.op, v)
    places = {op: place for place, op in enumerate(graph.get_operations()) if op in found}
    return [
        NamedVariable(op.name, _scope(op.name), "", v, op in trainable)
        for op, v in sorted(found.items(), key=lambda item: places.get(item[0], 0))
        if v.dtype.base_dtype in kernels.FLOATS
    ]


def gradient_of(op: Any) -> Any:
    """The gradient that an optimizer's kernel takes, None for another op."""
    return _argument(op, "grad", "delta") if walk.is_apply(op) else None


def rates_of(operations: Iterable[Any]) -> list[Any]:
    """The learning rates that optimizers' kernels take as inputs, each tensor once."""
    found = (_argument(op, "lr", "alpha") for op in operations)
    return list({tensor.name: tensor for tensor in found if tensor is not None}.values())


def _argument(op: Any, *names: str) -> Any:
    """The input of a kernel by the name in its definition, None if it has none such."""
    for definition, tensor in zip(op.op_def.input_arg, op.inputs, strict=False):
        if definition.name in names:
            return tensor
    return None


def inputs(operations: Iterable[Any]) -> list[Seen]:
    """Floating tensors that come out of queues and datasets."""
    return [
        Seen("input", t.op.name if len(op.outputs) == 1 else f"{t.op.name}:{number}", "", "", t, shape_of(t))
        for op in operations
        if op.type.startswith(walk.FEEDING)
        for number, t in enumerate(op.outputs)
        if readable_here(t)
    ]


def activations(losses: Sequence[Any], named: Sequence[NamedVariable]) -> list[Seen]:
    """What each layer puts out on the way to the losses, in the order in which the graph was made."""
    forward = walk.executed(loss.op for loss in losses)
    places = {op: place for place, op in enumerate(losses[0].graph.get_operations())} if losses else {}
    reads = {v.name: _reads(v.variable, forward) for v in named}
    derived = _derived(reads.values(), forward, places)
    layers: dict[str, list[Any]] = {}
    for v in named:
        layers.setdefault(v.layer, []).extend(_users(reads[v.name], derived, forward))
    met: set[str] = set()
    found: list[tuple[int, Seen]] = []
    for layer, users in layers.items():
        ends: dict[str, Any] = {}
        for op in sorted(set(users), key=lambda o: places.get(o, 0)):
            for tensor in _surface(op, forward):
                end = _end(tensor, set(users) if layer else (), derived, forward)
                if end.shape.rank != 0:
                    ends.setdefault(end.name, end)
        for end in ends.values():
            if end.name not in met:
                met.add(end.name)
                found.append((places.get(end.op, 0), Seen("activation", "", layer, "", end, shape_of(end))))
    return _named([seen for _, seen in sorted(found, key=lambda item: item[0])])


def activation(seen: Seen) -> str:
    """The function that an output comes out of: "relu", "sigmoid"; empty where that is none."""
    return _FUNCTIONS.get(seen.tensor.op.type, "") if seen.kind == "activation" else ""


def readable_here(tensor: Any) -> bool:
    """Whether this is a dense floating tensor that exists once in a run: not inside a loop or a branch."""
    plain = tensor.dtype in kernels.FLOATS and not tensor.dtype._is_ref_dtype
    context = tensor.op._get_control_flow_context()
    if context is not None and tensor.op.type in ("Exit", "RefExit"):  # what comes out of a loop belongs outside
        context = context.outer_context
    return plain and context is None


def shape_of(tensor: Any) -> tuple[int, ...] | None:
    """The static shape, -1 where a dimension is not known."""
    return None if tensor.shape.rank is None else tuple(-1 if d is None else d for d in tensor.shape.as_list())


def _named(seen: list[Seen]) -> list[Seen]:
    """`layer/output`, `layer:1/output` for a layer's second call; what has no layer is named by its op."""
    calls: dict[str, int] = {}
    for s in seen:
        if s.layer:
            number = calls[s.layer] = calls.get(s.layer, -1) + 1
            s.layer = s.layer if number == 0 else f"{s.layer}:{number}"
        s.name = f"{s.layer or s.tensor.op.name}/output"
    return seen


def _scope(name: str) -> str:
    return name.rpartition("/")[0]


def _reads(variable: Any, forward: Collection[Any]) -> list[Any]:
    """Tensors that hold a variable's value, and ops that take the variable itself."""
    found: list[Any] = []
    waiting = [variable.op.outputs[0]]
    while waiting:
        for op in waiting.pop().consumers():
            if op not in forward:
                continue
            if op.type == "ReadVariableOp" or op.type in ("Identity", "Enter", "RefEnter"):
                waiting += op.outputs if op.type != "ReadVariableOp" else []
                found += op.outputs if op.outputs[0].dtype != tf.resource else []
            else:
                found.append(op)
    return found


def _derived(reads: Iterable[list[Any]], forward: Collection[Any], places: dict[Any, int]) -> set[str]:
    """Names of tensors that are made of variables and constants alone, as a weight penalty is."""
    found = {t.name for several in reads for t in several if hasattr(t, "consumers")}
    for op in sorted(forward, key=lambda o: places.get(o, 0)):
        values = [t for t in op.inputs if t.op.type != "Const"]
        if (
            values
            and all(t.name in found for t in values)
            and all(t.dtype not in kernels.FLOATS or t.shape.rank == 0 for t in op.inputs if t.op.type == "Const")
        ):
            found |= {t.name for t in op.outputs}
    return found


def _users(reads: list[Any], derived: set[str], forward: Collection[Any]) -> list[Any]:
    """Ops in which a variable meets data."""
    found: list[Any] = []
    waiting, met = list(reads), set()
    while waiting:
        one = waiting.pop()
        ops = one.consumers() if hasattr(one, "consumers") else [one]
        for op in ops:
            if op not in forward or op in met:
                continue
            met.add(op)
            if op.outputs and op.outputs[0].name in derived:
                waiting += op.outputs
            elif any(t.shape.rank != 0 for t in op.outputs):
                found.append(op)
    return found


def _surface(op: Any, forward: Collection[Any]) -> list[Any]:
    """The op's own output, or, of an op inside a loop, what comes out of the loop."""
    if op.outputs and readable_here(op.outputs[0]) and op.type not in ("While", "StatelessWhile"):
        return [op.outputs[0]]
    found: list[Any] = []
    waiting, met = [op], {op}
    while waiting:
        for tensor in waiting.pop().outputs:
            behind = [o for o in tensor.consumers() if o in forward and o not in met]
            if readable_here(tensor) and tensor.shape.rank != 0:
                found += [tensor] if behind else []
                continue
            met |= set(behind)
            waiting += behind
    return found


def _end(tensor: Any, own: Collection[Any], derived: set[str], forward: Collection[Any]) -> Any:
    """Go on from a layer's product to its bias and its activation, as long as the way does not fork.

    `own`: the ops in which the layer's variables meet data; where no layer has a name, only what looks like a bias.
    """
    while True:
        behind = [o for o in tensor.consumers() if o in forward and o.type != "Shape"]
        if len(behind) != 1 or not behind[0].outputs or not readable_here(behind[0].outputs[0]):
            return tensor
        op = behind[0]
        others = [t for t in op.inputs if t is not tensor]
        bias = not own and op.type in _SUMS and all(t.name in derived for t in others)
        if op.outputs[0].shape.rank == 0 or not (op in own or op.type in _BEHIND or bias):
            return tensor
        tensor = op.outputs[0]
