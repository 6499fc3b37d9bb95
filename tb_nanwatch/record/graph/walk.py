"""What a run of a session executes, and whether that is a training step."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps_utils

HANDS_ON: Final = frozenset(
    [
        "Identity",
        "IdentityN",
        "RefIdentity",
        "Enter",
        "RefEnter",
        "Exit",
        "RefExit",
        "Switch",
        "RefSwitch",
        "Merge",
        "RefMerge",
        "NextIteration",
        "RefNextIteration",
        "RefSelect",
        "_SwitchN",
    ]
)
_READS: Final = frozenset(
    ["ReadVariableOp", "VarIsInitializedOp", "IsVariableInitialized", "VariableShape", "DestroyResourceOp"]
)
FUNCTIONS: Final = frozenset(
    [
        "If",
        "StatelessIf",
        "While",
        "StatelessWhile",
        "Case",
        "StatelessCase",
        "PartitionedCall",
        "StatefulPartitionedCall",
    ]
)
#: Ops that make what a step is fed, where that is not done by hand.
FEEDING: Final = ("IteratorGetNext", "OneShotIterator", "QueueDequeue", "ReaderRead")
_WAITING: Final = ("QueueDequeue", "ReaderRead", "Unstage", "OrderedMapUnstage", "MapUnstage", "BarrierTakeMany")
_LOADED: Final = ("Const", "Placeholder", "PlaceholderV2", "PlaceholderWithDefault", "RestoreV2", "Restore")


def executed(starts: Iterable[Any], fed: Collection[str] = ()) -> set[Any]:
    """All ops that run for the ops `starts`, when the tensors named in `fed` are given from outside."""
    found: set[Any] = set()
    waiting = list(starts)
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting += op.control_inputs
            waiting += [t.op for t in op.inputs if t.name not in fed]
    return found


def assigned(ran: Iterable[Any], gradients: Iterable[Any], fed: Collection[str] = ()) -> list[Any]:
    """What the ops `ran` put into floating variables without having it from a gradient, such as a moving average."""
    derived = {t.op for t in gradients}
    values = [op.inputs[1] for op in sorted(ran, key=lambda op: op._id) if op.type.startswith("Assign")]
    return [v for v in values if v.dtype.base_dtype.is_floating and not derived & executed([v.op], fed)]


def downstream(tensors: Iterable[Any]) -> set[Any]:
    """All ops into which the values of tensors flow."""
    found: set[Any] = set()
    waiting = list(tensors)
    while waiting:
        for op in waiting.pop().consumers():
            if op not in found:
                found.add(op)
                waiting += op.outputs
    return found


def goes_inside(op: Any) -> bool:
    """Whether an op is part of a loop or a branch, or calls a function: its values cannot be fetched."""
    return op._get_control_flow_context() is not None or op.type in FUNCTIONS


def home(tensor: Any) -> Any:
    """The op of the variable to which a handle or a reference leads."""
    while tensor.op.type in HANDS_ON and tensor.op.inputs:
        tensor = tensor.op.inputs[0]
    return tensor.op


def written(op: Any) -> set[Any]:
    """The ops of the variables that an op may change."""
    if op.type in HANDS_ON or op.type in _READS:
        return set()
    found = set()
    if any(t.dtype == tf.resource for t in op.inputs):
        found = {home(t) for t in auto_control_deps_utils.get_read_write_resource_inputs(op)[1]}
    if any(argument.is_ref for argument in op.op_def.input_arg):
        found |= {home(t) for t in op.inputs if t.dtype._is_ref_dtype}
    return found


def waits(ops: Iterable[Any]) -> str:
    """The name of an op that waits for what another thread of the program brings, empty if there is none."""
    return next((str(op.name) for op in ops if op.type.startswith(_WAITING)), "")


def fills(graph: Any) -> list[Any]:
    """The ops that fill the tables of a graph; what makes a data set begin anew is in the same collection."""
    ops = graph.get_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS)
    return [op for op in ops if op.type.startswith(("LookupTableImport", "InitializeTable"))]


def is_apply(op: Any) -> bool:
    """Whether this is the kernel of an optimizer."""
    return op.type.removeprefix("Resource").removeprefix("Sparse").startswith("Apply")


def training_ops(graph: Any, variables: Iterable[Any], gradients: Iterable[tuple[Any, Any]]) -> list[Any]:
    """The ops that train, in the order in which they were made.

    They change one of `variables` by an optimizer or a gradient, or keep a gradient in another global variable.
    Initializing, restoring, averaging and clipping variables is no training. A variable of which no gradient is known
    is trained by whatever changes it, but for initializing and loading. `gradients` are pairs of a tensor and
    its variable.
    """
    gradients = list(gradients)
    watched = {v.op for v in variables}
    known = {variable.op for _, variable in gradients}
    shared = {v.op for v in graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)} - watched
    flows = downstream(tensor for tensor, _ in gradients)
    initializers = {v.initializer for v in variables}
    found = []
    for op in graph.get_operations():
        changed = written(op)
        if not changed or op in initializers:
            continue
        mine = changed & watched
        if (
            mine and (is_apply(op) or op.type in FUNCTIONS or op in flows or (not mine & known and not _loads(op)))
        ) or (changed & shared and op in flows):
            found.append(op)
    return found


def _loads(op: Any) -> bool:
    """Whether an op gives a variable a value from outside the graph."""
    value = op.inputs[-1] if op.inputs else None
    return value is not None and home(value).type in _LOADED


def train_groups(operations: Iterable[Any]) -> list[list[Any]]:
    """Training ops that one call of an optimizer made: those behind which the same op waits."""
    by_op: dict[Any, list[Any]] = {}
    for op in operations:
        waits = next((behind for behind in op._control_outputs if behind.type == "NoOp"), op)
        by_op.setdefault(waits, []).append(op)
    return list(by_op.values())
