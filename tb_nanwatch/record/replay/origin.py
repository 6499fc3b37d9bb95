"""From an observed step to the op that made the first bad value.

It is the first op that makes a NaN from inputs without NaN, or an infinity from finite inputs, whose damage
reaches the loss, a gradient, a variable or a metric through a chain of bad tensors. Infinities that were put in as
constants make no origin, nor does damage that nothing uses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tb_nanwatch.format.records import Counts, OperandStats
from tb_nanwatch.record.naming import handle_of
from tb_nanwatch.record.replay.observe import BACKWARD, FORWARD, IN_PLACE, UPDATE, Node, Observation, state_of

_WRITES: Final = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter")
MASKABLE: Final = frozenset({"Softmax", "LogSoftmax", "Exp", "Max", "Maximum"})  # -inf is a legal input of these
LOSS, GRADIENT, VARIABLE, METRIC = "loss", "gradient", "variable", "metric"
SELECTS: Final = frozenset({"Select", "SelectV2"})  # ops of tf.where
NEIGHBOURS: Final = 6  # of the origin on each side, for the graph that is shown


@dataclass(frozen=True)
class Found:
    """The op, the phase, and what its damage reached. through_where: a tf.where of the forward pass threw the bad value
    away, and the gradient brought it back.
    """

    node: Node
    phase: str
    reaches: frozenset[str]
    through_where: bool = False
    outputs: tuple[Any, ...] = ()  # where they are not those of the node: XLA's


class Damage:
    """Follows bad tensors through an observation."""

    def __init__(self, seen: Observation) -> None:
        self._seen = seen
        self._consumers: dict[int, list[Node]] = {}
        for node in seen.nodes:
            for tensor in node.inputs:
                self._consumers.setdefault(id(tensor), []).append(node)
        collector = seen.collector
        self._losses = {id(t) for _, t in collector.losses} | {id(t) for t in collector.scaled_losses()}
        self._gradients = {id(s.tensor) for s in collector.seen if s.kind == "gradient"}
        self._metrics = {id(handle_of(metric.variable)) for metric in collector.names.metrics}

    def reaches(self, tensors: Iterable[Any]) -> frozenset[str]:
        """Which of loss, gradient, metric and other variable the bad ones among `tensors` damage."""
        found: set[str] = set()
        queue = deque(t for t in tensors if any(state_of(t)))
        done: set[int] = set()
        while queue:
            tensor = queue.popleft()
            if id(tensor) in done:
                continue
            done.add(id(tensor))
            if id(tensor) in self._losses:
                found.add(LOSS)
            if id(tensor) in self._gradients:
                found.add(GRADIENT)
            made = self._seen.producers.get(id(tensor))
            if made is not None and made.op_type in IN_PLACE:
                found.add(self._written(made))
            masked = _only_minus_infinity(tensor)
            for node in self._consumers.get(id(tensor), ()):
                if masked and node.op_type in MASKABLE:
                    continue  # what it makes of a mask is its own doing
                if node.op_type.startswith(_WRITES):
                    found.add(self._written(node))
                queue.extend(t for t in node.outputs if _is_bad(t))
        return frozenset(found)

    def keeps(self, node: Node) -> bool:
        """Whether the forward pass itself writes what an op damages to a variable, as moving statistics are."""
        waiting, done = deque([node]), {node.number}
        while waiting:
            for after in self.consumers(waiting.popleft()):
                if after.stage != FORWARD or after.number in done or _in_metric(after):
                    continue
                done.add(after.number)
                if after.op_type.startswith(_WRITES) and self._written(after) == VARIABLE:
                    return True
                if after.bad:
                    waiting.append(after)
        return False

    def _written(self, node: Node) -> str:
        return METRIC if id(node.inputs[0]) in self._metrics else VARIABLE

    def is_thrown_away(self, node: Node) -> bool:
        """Whether a tf.where of the forward pass took the bad values of an op, or what they made, and chose others."""
        waiting, done = deque([node]), {node.number}
        while waiting:
            for after in self.consumers(waiting.popleft()):
                if after.stage != FORWARD or after.number in done or not (after.nan_in or after.inf_in):
                    continue
                done.add(after.number)
                if after.op_type in SELECTS and not after.bad:
                    return True
                if after.bad:
                    waiting.append(after)
        return False

    def consumers(self, node: Node) -> list[Node]:
        return [c for t in node.outputs for c in self._consumers.get(id(t), ())]


def find(seen: Observation, inputs: Iterable[Any]) -> Found | None:
    """The origin; None if nothing bad was seen that matters. `inputs` are the tensors of the batch."""
    damage = Damage(seen)
    from_batch = [t for t in inputs if _is_bad(t)]
    if from_batch:
        reached = damage.reaches(from_batch)
        if reached:
            first = next((n for n in seen.nodes if any(t is b for t in n.inputs for b in from_batch)), None)
            if first is not None:
                return Found(first, "input", reached)
    for node in seen.nodes:
        if not _made(node) or not node.inputs or node.op_type in ("ReadVariableOp", "Const"):
            continue
        reached = damage.reaches(node.outputs)
        if reached:
            return _judged(seen, node, reached, damage)
    return None


def _made(node: Node) -> bool:
    """Whether an op made a NaN from inputs without NaN, or an infinity from finite ones."""
    return (node.nan_out and not node.nan_in) or (node.inf_out and not (node.nan_in or node.inf_in))


def _judged(seen: Observation, node: Node, reached: frozenset[str], damage: Damage) -> Found:
    loss_bad = any(any(state_of(t)) for _, t in seen.collector.losses)
    if node.stage == UPDATE:
        return Found(node, "update", reached)
    if node.stage == BACKWARD:
        forward = seen.nodes[node.forward] if node.forward >= 0 else node
        if _made(forward) and damage.is_thrown_away(forward):
            return Found(forward, "backward", reached, through_where=True)
        return Found(node, "backward", reached)
    loss_seen = bool(seen.collector.losses)  # else nobody knows whether the loss was finite
    if loss_seen and LOSS not in reached and not loss_bad and GRADIENT in reached and not damage.keeps(node):
        return Found(node, "backward", reached, through_where=damage.is_thrown_away(node))
    if reached == {METRIC} or (reached == {VARIABLE} and _in_metric(node)):
        return Found(node, "metric", reached)
    return Found(node, "forward" if node.inside else "loss", reached)


def _in_metric(node: Node) -> bool:
    """Whether a metric of Keras computes it: one that belongs to no watched model."""
    return any("/metrics/" in code.co_filename for code, _ in node.frames)


def _only_minus_infinity(tensor: Any) -> bool:
    array = np.asarray(tensor).astype(np.float64)
    return not np.isnan(array).any() and not np.isposinf(array).any()


def _is_bad(tensor: Any) -> bool:
    return tensor is not None and getattr(tensor.dtype, "is_floating", False) and any(state_of(tensor))


# ---------------------------------------------------------------- what is told of it


def operands(seen: Observation, node: Node, names: dict[int, str]) -> tuple[OperandStats, ...]:
    """Ranges and counts of an op's inputs."""
    return tuple(_operand(t, _name(seen, t, names, n)) for n, t in enumerate(node.inputs) if hasattr(t, "shape"))


def _operand(tensor: Any, name: str) -> OperandStats:
    shape = tuple(int(d) for d in tensor.shape)
    dtype = tensor.dtype.name
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer) or 0 in shape:
        return OperandStats(name, dtype, shape)
    array = np.asarray(tensor).astype(np.float64)
    finite = array[np.isfinite(array)]
    return OperandStats(
        name,
        dtype,
        shape,
        float(finite.min(initial=np.inf)) if finite.size else 0.0,
        float(finite.max(initial=-np.inf)) if finite.size else 0.0,
        int(np.isnan(array).sum()),
        int(np.isinf(array).sum()),
        int((array == 0).sum()),
        int((array < 0).sum()),
    )


def _name(seen: Observation, tensor: Any, names: dict[int, str], number: int) -> str:
    """The tensor's own name, that of what it was made from by renaming and reading, or its producer's op."""
    for _ in range(8):
        if id(tensor) in names:
            return names[id(tensor)]
        made = seen.producers.get(id(tensor))
        if made is None or not made.inputs:
            break
        if made.op_type not in ("ReadVariableOp", "Identity", "Cast", "Reshape", "StopGradient", "ExpandDims"):
            return f"{made.layer}/{made.op_type}" if made.layer else made.op_type
        tensor = made.inputs[0]
    return f"input {number}"


def counts(node: Node) -> Counts:
    """Counts over the floating outputs of an op."""
    total = Counts()
    for tensor in node.outputs:
        if not getattr(tensor.dtype, "is_floating", False):
            continue
        array = np.asarray(tensor).astype(np.float64)
        total = Counts(
            total.nan + int(np.isnan(array).sum()),
            total.pos_inf + int(np.isposinf(array).sum()),
            total.neg_inf + int(np.isneginf(array).sum()),
            total.size + array.size,
        )
    return total


def samples(tensor: Any, batch: int | None, most: int = 1024) -> tuple[int, ...]:
    """Rows of the batch that hold bad elements; empty where the first axis is not the batch."""
    array = np.asarray(tensor).astype(np.float64)
    if not batch or array.ndim == 0 or array.shape[0] != batch:
        return ()
    bad = ~np.isfinite(array.reshape(batch, -1)).all(axis=1)
    return tuple(int(n) for n in np.flatnonzero(bad)[:most])


def neighbourhood(seen: Observation, node: Node) -> list[dict[str, Any]]:
    """Producers, the origin and consumers, for a small graph."""
    makers = [seen.producers.get(id(t)) for t in node.inputs]
    before = [m for m in makers if m is not None][:NEIGHBOURS]
    after = Damage(seen).consumers(node)[:NEIGHBOURS]
    return [
        {
            "role": role,
            "op_type": n.op_type,
            "layer": n.layer,
            "stage": n.stage,
            "state": [s for s, flag in (("nan", n.nan_out), ("inf", n.inf_out)) if flag],
        }
        for role, group in (("producer", before), ("origin", [node]), ("consumer", after))
        for n in group
    ]


__all__ = ["FORWARD", "Found", "counts", "find", "neighbourhood", "operands", "samples"]
