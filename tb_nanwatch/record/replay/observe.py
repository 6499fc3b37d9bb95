"""An eager step with every op looked at: what went in, what came out, in which layer and phase, from which line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import backprop
from tensorflow.python.framework import op_callbacks

from tb_nanwatch.record import hooks
from tb_nanwatch.record.collect import Collector, collecting, leaves
from tb_nanwatch.record.replay import slots, source
from tb_nanwatch.record.replay.memory import Call, Ways

FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"
IN_PLACE = frozenset({"AssignAddVariableOp", "AssignSubVariableOp"})  # make a value, and give none back


@dataclass
class Node:
    """One op that ran. `forward` is the number of the forward op whose gradient it computes, -1 if none."""

    number: int
    op_type: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    attributes: tuple[Any, ...]
    stage: str
    layer: str
    layer_class: str
    inside: bool  # of a layer, model or module
    frames: list[source.Frame]
    forward: int = -1
    nan_in: bool = False
    inf_in: bool = False
    nan_out: bool = False
    inf_out: bool = False

    @property
    def bad(self) -> bool:
        return self.nan_out or self.inf_out


@dataclass
class Observation:
    """All ops of a step in the order in which they ran."""

    nodes: list[Node] = field(default_factory=list)
    producers: dict[int, Node] = field(default_factory=dict)  # id of a tensor -> the op that made it
    collector: Any = None
    error: Exception | None = None
    given: list[tuple[str, Any]] = field(default_factory=list)  # parts of the batch by name
    slots: dict[int, str] = field(default_factory=dict)  # names of the optimizer's, by id of handle
    layers: list[tuple[str, str]] = field(default_factory=list)
    _depth: dict[str, int] = field(default_factory=lambda: {BACKWARD: 0, UPDATE: 0})
    _forward: int = -1
    _values: dict[int, Any] = field(default_factory=dict)  # id of a variable's handle -> its value as last seen
    _reading: bool = False  # by the observer itself

    # ------------------------------------------------------------ called while the step runs

    def op(self, op_type: Any, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None) -> None:  # noqa: ARG002
        """The op callback. Returns nothing: outputs stay as they are."""
        if graph is not None or self._reading:
            return
        name = _text(op_type)
        layer, layer_class = self.layers[-1] if self.layers else ("", "")
        stage = UPDATE if self._depth[UPDATE] else BACKWARD if self._depth[BACKWARD] else FORWARD
        node = Node(
            len(self.nodes),
            name,
            tuple(inputs),
            tuple(outputs),
            tuple(attrs or ()),
            stage,
            layer,
            layer_class,
            bool(self.layers),
            source.stack(2),
            self._forward if stage == BACKWARD else -1,
        )
        self._follow_variable(node)
        node.nan_in, node.inf_in = _state(node.inputs)
        node.nan_out, node.inf_out = _state(node.outputs)
        if node.bad and not node.inside and stage == FORWARD:
            module = _module()
            if module is not None:
                node.inside = True
                node.layer, node.layer_class = self.collector.names.submodule(module)
        self.nodes.append(node)
        for tensor in node.outputs:
            self.producers[id(tensor)] = node

    def _follow_variable(self, node: Node) -> None:
        """Make an addition in place look like one that gives its sum, and takes what was there as a third input."""
        if node.op_type == "ReadVariableOp":
            self._values[id(node.inputs[0])] = node.outputs[0]
        elif node.op_type == "AssignVariableOp":
            self._values[id(node.inputs[0])] = node.inputs[1]
        elif node.op_type in IN_PLACE and node.inputs[1].dtype.is_floating:
            handle, value = node.inputs
            before = self._values.get(id(handle))
            self._reading = True
            try:
                after = tf.raw_ops.ReadVariableOp(resource=handle, dtype=value.dtype)
            finally:
                self._reading = False
            self._values[id(handle)] = after
            if before is not None:  # else nobody knows whether it was bad
                node.inputs, node.outputs = (handle, value, before), (after,)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self._depth[name] += 1
        try:
            yield
        finally:
            self._depth[name] -= 1

    @contextmanager
    def layer(self, path: str, layer_class: str) -> Iterator[None]:
        self.layers.append((path, layer_class))
        try:
            yield
        finally:
            self.layers.pop()

    def gradient_of(self, op_type: str, inputs: Any, outputs: Any) -> int:
        """Number of the forward op with these inputs and outputs, as the tape hands them to its gradient."""
        for tensor in outputs or ():
            made = self.producers.get(id(tensor))
            if made is not None:
                return made.number
        wanted = {id(t) for t in inputs or () if t is not None}
        for node in reversed(self.nodes):
            if node.op_type == op_type and node.stage == FORWARD and wanted and wanted <= {id(t) for t in node.inputs}:
                return node.number
        return -1


def run(ways: Ways, call: Call, collector: Collector) -> Observation:
    """Run a call eagerly, tf.functions included, and look at every op.

    An exception of the step is kept in the observation: a kernel that refuses its input is an answer, too.
    """
    seen = Observation(collector=collector)
    collector.observer = seen
    was_eager = tf.config.functions_run_eagerly()
    with ExitStack() as stack:
        stack.enter_context(hooks.installed(collector.guard))
        stack.enter_context(collecting(collector))
        stack.enter_context(_gradients_known(seen))
        tf.config.run_functions_eagerly(True)
        stack.callback(tf.config.run_functions_eagerly, was_eager)
        op_callbacks.add_op_callback(seen.op)
        stack.callback(op_callbacks.remove_op_callback, seen.op)
        collector.inputs(ways.inputs(call.data), call.names)
        seen.given = leaves(ways.inputs(call.data), call.names)
        try:
            ways.by_hand(call.data)
        except Exception as error:
            seen.error = error
    seen.slots = slots.named(ways.optimizer, collector.names)
    return seen


@contextmanager
def _gradients_known(seen: Observation) -> Iterator[None]:
    """While a gradient op runs, remember of which forward op."""
    original = backprop._gradient_function

    def known(op_name: Any, attributes: Any, count: Any, inputs: Any, outputs: Any, *rest: Any) -> Any:
        before, seen._forward = seen._forward, seen.gradient_of(_text(op_name), inputs, outputs)
        try:
            return original(op_name, attributes, count, inputs, outputs, *rest)
        finally:
            seen._forward = before

    pywrap_tfe.TFE_Py_RegisterGradientFunction(known)
    try:
        yield
    finally:
        pywrap_tfe.TFE_Py_RegisterGradientFunction(original)


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def state_of(tensor: Any) -> tuple[bool, bool]:
    """(holds NaN, holds an infinity) of an eager floating tensor."""
    return _state((tensor,))


def _state(tensors: Any) -> tuple[bool, bool]:
    nan = inf = False
    for tensor in tensors:
        if tensor is None or not getattr(tensor.dtype, "is_floating", False):
            continue
        array = np.asarray(tensor)
        if array.dtype.kind != "f":  # bfloat16 and its like
            array = array.astype(np.float32)
        if not np.isfinite(array).all():
            nan |= bool(np.isnan(array).any())
            inf |= bool(np.isinf(array).any())
    return nan, inf


def _module() -> Any:
    """The innermost tf.Module through whose call the stack passes, or None. Asked only for ops whose output is bad."""
    import sys

    frame: Any = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        called = code.co_name in ("__call__", "call") and source.is_users(code.co_filename)
        if called and isinstance(frame.f_locals.get("self"), tf.Module):
            return frame.f_locals["self"]
        frame = frame.f_back
    return None
