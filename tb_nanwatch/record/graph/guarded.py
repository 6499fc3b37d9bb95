"""Copies of a graph in which an op inside a loop, a branch or a function, where nothing can be fed, has a guard.

A function of ours keeps its input in bounds each time that the op runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import tensorflow as tf

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

    fetches = [[graph.as_graph_element(f).name for f in tf.nest.flatten(fed.fetches)] for fed in steps]
    keep = {name.partition(":")[0] for names in fetches for name in names}
    copy = flat.flatten(graph, losses, gradients, list(keep), steps[-1].feeds)
    tensors = list({o.inputs[number].name: o.inputs[number] for o in copy.of(op)}.values())
    flat.rewire(copy.definition, {tensor.name: f"{_NAME}{n}:0" for n, tensor in enumerate(tensors)})
    for n, tensor in enumerate(tensors):
        flat.call_of(copy.definition, f"{_NAME}{n}", guard, [(tensor.name, tensor.dtype)], 1)
    return Guarded(
        flat.imported(copy.definition, graph),
        [replace(fed, fetches=names) for fed, names in zip(steps, fetches, strict=True)],
        [t.name for t in copy.losses],
        [t.name for t in copy.gradients],
        guard,
    )
