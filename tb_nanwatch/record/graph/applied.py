"""The gradients that a graph applies, found at the ops that change a variable.

Most enter the kernel of an optimizer as an argument. Inside a conditional they come in from outside. An optimizer
without a kernel for sparse gradients, such as Adam, writes its update in plain ops: there the gradient is the one
tensor that flows into the name scope of the update.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tensorflow.python.ops import cond_v2

from tb_nanwatch.record import kernels
from tb_nanwatch.record.graph import names, walk

_BRANCHES: Final = ("If", "StatelessIf")
_PASSES_ON: Final = ("Identity", "Switch", "RefSwitch")
_ADDS: Final = ("AssignSub", "AssignAdd", "ScatterSub", "ScatterAdd", "ScatterNdSub", "ScatterNdAdd")


def gradients(operations: Iterable[Any], by_op: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """(gradient, variable) of what is applied; `by_op` are the watched variables by their ops."""
    found: dict[Any, tuple[Any, Any]] = {}
    sparse: dict[Any, Any] = {}
    for op in operations:
        changed = walk.written(op) & set(by_op)
        if not changed:
            continue
        if op.type in _BRANCHES:
            for variable, gradient in _in_branches(op, changed):
                found.setdefault(variable, (gradient, by_op[variable]))
        elif walk.is_apply(op):
            gradient = names.gradient_of(op)
            for variable in changed if gradient is not None else ():
                found.setdefault(variable, (_outside(gradient), by_op[variable]))
        elif op.type.removeprefix("Resource").removesuffix("VariableOp") in _ADDS:
            for variable in changed:
                sparse.setdefault(variable, op)
    for variable, op in sparse.items():
        gradient = None if variable in found else _flowing_in(op)
        if gradient is not None:
            found[variable] = (gradient, by_op[variable])
    return list(found.values())


def _outside(tensor: Any) -> Any:
    """The same value as it enters a conditional (of the kind without functions)."""
    while tensor.op._get_control_flow_context() is not None and tensor.op.type in _PASSES_ON:
        tensor = tensor.op.inputs[0]
    return tensor


def _in_branches(op: Any, changed: Iterable[Any]) -> list[tuple[Any, Any]]:
    """(op of a variable, gradient) of the kernels in a conditional's branches, where the gradient is made outside."""
    found = []
    given = list(op.inputs)[1:]  # behind the predicate
    for branch in cond_v2.get_func_graphs(op):
        places = {t.name: place for place, t in enumerate(branch.inputs)}
        for inner in branch.get_operations():
            gradient = names.gradient_of(inner)
            if gradient is None:
                continue
            while gradient.op.type == "Identity":
                gradient = gradient.op.inputs[0]
            place, handle = places.get(gradient.name), places.get(inner.inputs[0].name)
            if place is not None and handle is not None and walk.home(given[handle]) in changed:
                found.append((walk.home(given[handle]), _outside(given[place])))
    return found


def _flowing_in(op: Any) -> Any:
    """The only tensor with dimensions that comes into the name scope of an op and is no variable; None otherwise."""
    scope = op.name.rpartition("/")[0] + "/"
    waiting, met, found = [op], {op}, {}
    while waiting and scope != "/":
        one = waiting.pop()
        for behind in [*one.control_inputs, *(t.op for t in one.inputs)]:
            if behind.name.startswith(scope) and behind not in met:
                met.add(behind)
                waiting.append(behind)
        for tensor in one.inputs:
            floating = tensor.dtype in kernels.FLOATS and not tensor.dtype._is_ref_dtype and tensor.shape.rank != 0
            read = tensor.op.type == "ReadVariableOp" or walk.home(tensor).type.startswith("Var")
            if floating and not read and not tensor.op.name.startswith(scope):
                found[tensor.name] = tensor
    return next(iter(found.values())) if len(found) == 1 else None
