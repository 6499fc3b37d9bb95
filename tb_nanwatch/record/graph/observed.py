"""The values of one step of a graph, and the way that bad ones take through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tb_nanwatch.record.graph import trials, walk
from tb_nanwatch.record.graph.flat import Flat
from tb_nanwatch.record.graph.memory import Fed
from tb_nanwatch.record.kernels import FLOATS
from tb_nanwatch.record.replay.origin import MASKABLE, SELECTS

_NO_OPS: Final = ("Const", "Placeholder", "VariableV2", "VarHandleOp", "ReadVariableOp")
#: Ops that hand on what was made elsewhere: in a list, in an earlier iteration, in another branch.
_CARRIERS: Final = ("TensorArray", "TensorList", "Stack")


@dataclass
class Seen:
    """Values of a step by tensor name, and the graph around them.

    Of an op that runs several times in a step, in a loop, the values are those of the first time that it made
    something bad. `taken`: the inputs of those ops, at that time, by the op's name and the tensor's; what is not
    there is in `values`. `made`: the ops that made a bad value, in the order in which they did, where that was
    watched; else it follows from the values. `copy`: whose ops these are, if they are not the user's own.
    """

    values: Mapping[str, Any]
    ops: Sequence[Any]  # in the order in which they were made, which is an order of execution
    forward: set[Any]
    sinks: Mapping[str, str]  # tensor name -> loss or gradient
    feeds: Mapping[str, Any]
    taken: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    made: Sequence[Any] | None = None
    copy: Flat | None = None
    _consumers: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        stacks: dict[Any, list[Any]] = {}
        for op in self.ops:
            for tensor in op.inputs:
                self._consumers.setdefault(tensor.name, []).append(op)
            if op.type.startswith("StackPop"):
                stacks.setdefault(walk.home(op.inputs[0]), []).append(op)
        for op in self.ops:
            if op.type.startswith("StackPush"):
                self._consumers.setdefault(op.outputs[0].name, []).extend(stacks.get(walk.home(op.inputs[0]), ()))

    def bad(self, tensor: Any) -> tuple[bool, bool]:
        """(holds NaN, holds an infinity); False for what could not be looked at."""
        value = self.values.get(tensor.name)
        return (False, False) if value is None else state_of(value)

    def value(self, op: Any, tensor: Any) -> Any:
        """What an op took in or put out; None where that is not known."""
        taken = self.taken.get(op.name, {}).get(tensor.name)
        return self.values.get(tensor.name, self.feeds.get(tensor.name)) if taken is None else taken

    def makers(self) -> list[Any]:
        """The ops that made a NaN from inputs without NaN, or an infinity from finite ones, the first one first."""
        candidates = self.ops if self.made is None else sorted(self.made, key=lambda op: op not in self.forward)
        return [op for op in candidates if op.inputs and not _hands_on(op) and not _is_opaque(op) and self.makes(op)]

    def makes(self, op: Any) -> bool:
        """Whether an op makes a NaN from inputs without NaN, or an infinity from finite ones."""
        if self.made is not None:
            return op in self.made
        return makes([self.bad(t) for t in op.inputs], [self.bad(t) for t in op.outputs])

    def original(self, op: Any) -> Any:
        """The op of the user's graph that an op stands for."""
        return op if self.copy is None else self.copy.original(op)

    def forward_of(self, op: Any) -> Any:
        """The op of the forward pass to which a gradient op belongs."""
        original = getattr(self.original(op), "_original_op", None)
        found = original if self.copy is None else self.copy.forward_of(op, original, self.forward)
        return found or next((t.op for t in op.inputs if t.op in self.forward and t.op.inputs), op)

    def reaches(self, tensors: Sequence[Any]) -> set[str]:
        """Which sinks the bad ones among tensors damage."""
        found: set[str] = set()
        queue = [t for t in tensors if any(self.bad(t))]
        done: set[str] = set()
        while queue:
            tensor = queue.pop()
            if tensor.name in done:
                continue
            done.add(tensor.name)
            if tensor.name in self.sinks and any(self.bad(tensor)):
                found.add(self.sinks[tensor.name])
            masked = self._is_mask(tensor)
            for op in self._consumers.get(tensor.name, ()):
                if not (masked and op.type in MASKABLE):
                    queue += self._spoiled(op)
        return found

    def producers(self, op: Any) -> list[Any]:
        """The ops that made what an op took in, past those that only hand on."""
        return list(dict.fromkeys(walk.home(t) for t in op.inputs))

    def consumers(self, op: Any) -> list[Any]:
        """The ops that take what an op puts out, past those that only hand on; also in a later round of a loop."""
        found: dict[Any, None] = {}
        waiting, met = [op], {op}
        while waiting:
            for after in [o for t in waiting.pop().outputs for o in self._consumers.get(t.name, ()) if o not in met]:
                met.add(after)
                if after.type in walk.HANDS_ON:
                    waiting.append(after)
                else:
                    found[after] = None
        return list(found)

    def is_thrown_away(self, op: Any) -> bool:
        """Whether a tf.where of the forward pass took the bad values of an op, or what they made, and chose others."""
        waiting, done = [op], {op}
        while waiting:
            outputs = self._spoiled(waiting.pop())
            for after in {o for t in outputs for o in self._consumers.get(t.name, ()) if o in self.forward} - done:
                done.add(after)
                spoiled = self._spoiled(after)
                if after.type in SELECTS and not spoiled:
                    return True
                if spoiled:
                    waiting.append(after)
        return False

    def _spoiled(self, op: Any) -> list[Any]:
        """The outputs that are bad, or through which bad values may go on unseen."""
        return [t for t in op.outputs if any(self.bad(t)) or (t.name not in self.values and _carries(op))]

    def _is_mask(self, tensor: Any) -> bool:
        value = self.values.get(tensor.name)
        if value is None:
            return False
        array = np.asarray(value, np.float64)
        return not np.isnan(array).any() and not np.isposinf(array).any()


def fetched(session: Any, graph: Any, fed: Fed, losses: Sequence[Any], gradients: Sequence[Any]) -> Seen:
    """Every floating tensor behind losses and gradients that can be fetched, at once. Raises OpError."""
    forward, ran = executed(losses, gradients, fed.feeds)
    wanted = [
        t
        for op in ran
        if op._get_control_flow_context() is None
        for t in op.outputs
        if t.dtype.base_dtype in FLOATS and t.name not in fed.feeds and graph.is_fetchable(t)
    ]
    got = session.run(wanted, trials.feeds(graph, fed))
    values = {t.name: v for t, v in zip(wanted, got, strict=True)} | floats(fed.feeds)
    return Seen(values, ran, forward, sinks(losses, gradients), fed.feeds)


def executed(
    losses: Sequence[Any], gradients: Sequence[Any], feeds: Mapping[str, Any]
) -> tuple[set[Any], Sequence[Any]]:
    """(the ops of the forward pass, all ops in the order in which they were made)."""
    forward = walk.executed([t.op for t in losses], feeds)
    ran = forward | walk.executed([t.op for t in gradients], feeds)
    return forward, sorted(ran, key=lambda op: op._id)


def sinks(losses: Sequence[Any], gradients: Sequence[Any]) -> dict[str, str]:
    """What the damage is measured by: loss or gradient, by the tensor's name."""
    return dict.fromkeys((t.name for t in gradients), "gradient") | dict.fromkeys((t.name for t in losses), "loss")


def floats(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """The floating ones of what was fed."""
    return {name: value for name, value in feeds.items() if trials.is_floating(np.asarray(value))}


def state_of(value: Any) -> tuple[bool, bool]:
    """(holds NaN, holds an infinity)."""
    array = np.asarray(value, np.float64)
    return bool(np.isnan(array).any()), bool(np.isinf(array).any())


def makes(taken: Sequence[tuple[bool, bool]], given: Sequence[tuple[bool, bool]]) -> bool:
    """By the states of inputs and outputs: whether a NaN comes out where none went in, an infinity of finite values."""
    nan_in, inf_in = any(n for n, _ in taken), any(i for _, i in taken)
    nan, inf = any(n for n, _ in given), any(i for _, i in given)
    return (nan and not nan_in) or (inf and not (nan_in or inf_in))


def _hands_on(op: Any) -> bool:
    return op.type in walk.HANDS_ON or op.type in _NO_OPS


def _is_opaque(op: Any) -> bool:
    return op.type.startswith(_CARRIERS) or op.type in walk.FUNCTIONS


def _carries(op: Any) -> bool:
    return op.type in walk.HANDS_ON or op.type.startswith(_CARRIERS) or op.type in walk.FUNCTIONS
