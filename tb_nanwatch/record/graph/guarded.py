"""Copies of a graph in which an op inside a loop, a branch or a function, where nothing can be fed, has a guard.

A function of ours keeps its input in bounds each time that the op runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tb_nanwatch.record.graph import flat
from tb_nanwatch.record.graph.memory import Fed

_NAME: Final = "nanwatch/guard/"


@dataclass(frozen=True)
class Guarded:
    """The copy; what the steps fetch, losses and gradients are names of its tensors and ops."""

    graph: Any
    steps: Sequence[Fed]
    losses: Sequence[str]
    gradients: Sequence[str]
    guard: Callable[[Any], Any]  # must live as long as the graph runs


def guarded(
    graph: Any,
    steps: Sequence[Fed],
    losses: Sequence[Any],
    gradients: Sequence[Any],
    place: tuple[Any, int],
    kept: Callable[[Any], Any],
) -> Guarded:
    """The copy with input number `place[1]` of op `place[0]` replaced by what `kept` makes of it.

    Raises what TensorFlow raises where the graph cannot be copied.
    """
    op, number = place

    def guard(value: Any) -> Any:
        return np.asarray(kept(value), value.dtype)

    fetches = [[end.name for end in fed.ends(graph)] for fed in steps]
    keep = {name.partition(":")[0] for names in fetches for name in names}
    keep |= {name.partition(":")[0] for fed in steps for name in fed.feeds}
    always = [name for name in steps[-1].feeds if all(name in fed.feeds for fed in steps)]
    copy = flat.flatten(graph, losses, gradients, list(keep), always)
    tensors = list({o.inputs[number].name: o.inputs[number] for o in copy.of(op)}.values())
    if not tensors:
        raise ValueError(f"the op {op.name} is not found in a copy of the graph")
    outside = [_outside(tensor) for tensor in tensors]
    inside = {t.name: f"{_NAME}{n}:0" for n, (t, e) in enumerate(zip(tensors, outside, strict=True)) if e is None}
    entering = {e.name: f"{_NAME}{n}:0" for n, e in enumerate(outside) if e is not None}
    flat.rewire(copy.definition.node, inside)
    flat.rewire([node for node in copy.definition.node if node.op == "Enter"], entering)
    for n, tensor in enumerate(t if e is None else e for t, e in zip(tensors, outside, strict=True)):
        flat.call_of(copy.definition, f"{_NAME}{n}", guard, [(tensor.name, tensor.dtype)], 1)
    return Guarded(
        flat.imported(copy.definition, graph),
        [replace(fed, fetches=names) for fed, names in zip(steps, fetches, strict=True)],
        [t.name for t in copy.losses],
        [t.name for t in copy.gradients],
        guard,
    )


def _outside(tensor: Any) -> Any:
    """What does not change in a loop, before it enters the loop, None of another tensor.

    The loop of the gradients takes it from there.
    """
    found = None
    while tensor.op.type in ("Identity", "Enter", "Switch"):
        entered = tensor.op.type == "Enter"
        tensor = tensor.op.inputs[0]
        found = tensor if entered else found
    return found
