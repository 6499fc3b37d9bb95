"""What the hooks hand in while a step runs or is traced, in the order in which it happened.

Only references are kept. No op is made before the step is over: an op in the middle of a graph would shift
the numbers from which TensorFlow seeds the random ops behind it, and with them the training.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from tb_nanwatch.record import kernels
from tb_nanwatch.record.fusion import in_xla, to_read
from tb_nanwatch.record.guard import Guard
from tb_nanwatch.record.naming import Names
from tb_nanwatch.record.options import Options

_RESHAPING = frozenset({"Flatten", "Reshape", "InputLayer", "Identity"})  # their output is their input


@dataclass
class Seen:
    """One tensor that a hook saw."""

    kind: str
    name: str
    layer: str
    layer_class: str
    tensor: Any
    shape: tuple[int, ...] | None = None
    same: Any = None  # of a gradient made in a nested tf.function: what that returned of it


@dataclass
class Collector:
    """Gathers the tensors of one step."""

    names: Names
    options: Options
    guard: Guard
    seen: list[Seen] = field(default_factory=list)
    losses: list[tuple[str, Any]] = field(default_factory=list)
    layer_order: dict[str, int] = field(default_factory=dict)
    optimizer_depth: int = 0
    missed: int = 0  # tensors inside control flow, where only a replay can look
    copies: Any = field(default_factory=dict)  # watched copies of nested tf.functions
    trying: Any = None  # a remedy under trial, told of gradients and optimizers
    observer: Any = None  # of a replay: told which layer and which part of the step is running
    replicas: dict[int, Collector] = field(default_factory=dict)  # of the replicas that this step runs
    distributing: bool = False  # while they run
    optimizers: list[Any] = field(default_factory=list)  # those that were applied, of the whole step
    _applying: dict[int, Any] = field(default_factory=dict)  # id(gradient) -> it, and the variable that it is for
    _calls: dict[str, int] = field(default_factory=dict)
    _tensor_ids: set[int] = field(default_factory=set)
    _unscaled: dict[int, Any] = field(default_factory=dict)
    _kept: list[Any] = field(default_factory=list)
    _graph: Any = field(default_factory=lambda: None if tf.executing_eagerly() else tf.compat.v1.get_default_graph())

    # ------------------------------------------------------------ called by hooks

    def inputs(self, structure: Any, names: list[str] | None = None) -> None:
        """The arguments of a step, or a batch as (x, y, sample_weight)."""
        for path, value in leaves(structure, names):
            of_numpy = self._graph is None and isinstance(value, np.ndarray) and value.dtype.kind == "f"
            tensor = kernels.measurable(tf.convert_to_tensor(value) if of_numpy else value)
            if tensor is not None:
                self._add("input", path, "", "", tensor)

    def activation(self, layer: Any, outputs: Any) -> None:
        """The output of a layer's call."""
        if not self.options.activations:
            return
        known = self.names.layer(layer)
        if known is None:
            if self.names:
                return
            known = (str(getattr(layer, "name", type(layer).__name__)), type(layer).__name__)
        path, layer_class = known
        if not path or layer_class in _RESHAPING:
            return
        self.layer_order.setdefault(path, len(self.layer_order))
        floats = [t for t in map(kernels.measurable, tf.nest.flatten(outputs)) if t is not None]
        here = [t for t in floats if self._reachable(t)]
        self.missed += len(floats) - len(here)
        if not here:  # inside control flow, or a call that only builds a model
            return
        number = self._calls.get(path, 0)
        self._calls[path] = number + 1
        name = path if number == 0 else f"{path}:{number}"
        for index, tensor in enumerate(floats):
            suffix = "output" if index == 0 else f"output_{index}"
            self._add("activation", f"{name}/{suffix}", name, layer_class, tensor)

    def place(self, layer: Any) -> tuple[str, str]:
        """(path, class name) of a layer, known or not; a model is named by itself."""
        path, layer_class = self.names.layer(layer) or ("", type(layer).__name__)
        return path or str(getattr(layer, "name", layer_class)), layer_class

    def observed(self, what: str, *names: str) -> Any:
        """Context in which an observer, if there is one, knows what is running."""
        return nullcontext() if self.observer is None else getattr(self.observer, what)(*names)

    def tap(self, name: str, tensor: Any) -> None:
        """A tensor that the user marked."""
        number = self._calls.get(f"tap {name}", 0)
        self._calls[f"tap {name}"] = number + 1
        self._add("activation", name if number == 0 else f"{name}:{number}", name, "tap", kernels.measurable(tensor))

    def scaled_loss(self, loss: Any, scaled: Any) -> None:
        """A loss and what a loss-scale optimizer made of it."""
        self._kept += [loss, scaled]
        self._unscaled[id(scaled)] = loss

    def scaled_losses(self) -> list[Any]:
        """What a loss-scale optimizer made of losses."""
        return self._kept[1::2]

    def gradients(self, target: Any, sources: Any, gradients: Any) -> None:
        """The result of a tape's `gradient`."""
        found = False
        for source, gradient in zip(tf.nest.flatten(sources), _flat_gradients(gradients), strict=False):
            found |= self.gradient(source, gradient)
        if found:
            for scaled in tf.nest.flatten(target):
                loss = kernels.measurable(self._unscaled.get(id(scaled), scaled))
                if loss is not None and self._reachable(loss):
                    number = len(self.losses)
                    self.losses.append(("loss" if number == 0 else f"loss:{number}", loss))

    def gradient(self, variable: Any, gradient: Any) -> bool:
        """The gradient of one variable; True if the variable is watched. The newest of a step replaces the older."""
        named = self.names.variable(variable)
        if named is None:
            return False
        tensor = None if gradient is None else kernels.measurable(gradient)
        if tensor is not None:
            self.seen = [s for s in self.seen if not (s.kind == "gradient" and s.name == named.name)]
            self._add("gradient", named.name, named.layer, named.layer_class, tensor, _shape(named.variable))
        return True

    def applied(self, optimizer: Any, variables: Any, gradients: Any) -> None:
        """What an optimizer is given: a gradient where no tape was seen to make it; else, if it is not what the tape
        made but was clipped or summed up since, a tensor of its own.
        """
        if not any(optimizer is known for known in self.optimizers):
            self.optimizers.append(optimizer)
        self._applying = {id(g): (g, v) for v, g in zip(variables, gradients, strict=False) if g is not None}
        made = {s.name: s for s in self.seen if s.kind == "gradient"}
        for variable, gradient in zip(variables, gradients, strict=False):
            named = self.names.variable(variable)
            if named is None or gradient is None:
                continue
            tape = made.get(named.name)
            if tape is None:
                self.gradient(variable, gradient)
            elif kernels.measurable(gradient) is not tape.tensor and kernels.measurable(gradient) is not tape.same:
                self.used(variable, gradient)

    def clipped(self, before: Any, after: Any) -> None:
        """What an optimizer itself made of the gradients that it was given."""
        for one, other in zip(before, after, strict=False):
            if one is not other and id(one) in self._applying:
                self.used(self._applying[id(one)][1], other)

    def used(self, variable: Any, gradient: Any) -> None:
        """What a variable is changed by. The newest of a step replaces the older."""
        named, tensor = self.names.variable(variable), kernels.measurable(gradient)
        if named is not None and tensor is not None and self._reachable(tensor):
            self.seen = [s for s in self.seen if not (s.kind == "applied" and s.name == named.name)]
            self._add("applied", named.name, named.layer, named.layer_class, tensor, _shape(named.variable))

    def readable(self) -> list[Seen]:
        """What may be read at the end of this graph, or of this eager step, without changing the training."""
        if tf.executing_eagerly():
            return list(self.seen)
        compiled = in_xla()
        tensors = [s.tensor if s.kind == "input" else to_read(s.tensor, compiled) for s in self.seen]
        return [replace(s, tensor=t) for s, t in zip(self.seen, tensors, strict=True) if t is not None]

    # ------------------------------------------------------------ nested tf.functions

    def inside(self) -> Collector:
        """A collector for a function that this step calls, created while that function is traced."""
        return Collector(
            self.names,
            self.options,
            self.guard,
            optimizer_depth=self.optimizer_depth,
            copies=self.copies,
            trying=self.trying,
            optimizers=self.optimizers,
        )

    def in_replica(self, replica: int) -> Collector:
        """The collector of one replica of a strategy that this step runs."""
        if replica not in self.replicas:
            self.replicas[replica] = self.inside()
            self.replicas[replica]._graph = self._graph
        return self.replicas[replica]

    def parts(self) -> list[tuple[int, Collector]]:
        """This collector as replica -1, and those of the replicas, in order."""
        return [(-1, self), *sorted(self.replicas.items())]

    def exported(self, results: list[Any]) -> dict[str, Any]:
        """What was seen, as outputs for a tf.function. Keys say what each tensor is, and sort by order.

        They also say which of the function's `results` it is, if it is one.
        """
        places = {id(result): number for number, result in enumerate(results)}
        found: dict[str, Any] = {}
        for replica, part in self.parts():
            for s in [*part.readable(), *(Seen("loss", name, "", "", loss) for name, loss in part.losses)]:
                place = places.get(id(s.tensor), -1)
                key = f"{len(found):06d}\n{replica}\n{place}\n{s.kind}\n{s.name}\n{s.layer}\n{s.layer_class}"
                found[key] = tf.stop_gradient(s.tensor)
        return found

    def absorb(self, exported: dict[str, Any], results: list[Any]) -> None:
        """Take over what a nested function exported beside its `results`."""
        by_replica: dict[int, dict[str, Any]] = {}
        for key in sorted(exported):
            _, replica, key_in_replica = key.split("\n", 2)
            by_replica.setdefault(int(replica), {})[key_in_replica] = exported[key]
        for number, part in by_replica.items():
            (self if number < 0 else self.in_replica(number))._take_over(part, results)

    def _take_over(self, exported: dict[str, Any], results: list[Any]) -> None:
        have = {s.name for s in self.seen if s.kind == "activation"}
        for key, tensor in exported.items():
            place, kind, name, layer, layer_class = key.split("\n")
            if kind == "loss":
                number = len(self.losses)
                self.losses.append(("loss" if number == 0 else f"loss:{number}", tensor))
                continue
            if kind == "activation":
                self.layer_order.setdefault(layer.partition(":")[0], len(self.layer_order))
                if name in have:
                    number = self._calls[name] = self._calls.get(name, 0) + 1
                    name = f"{name}:{number}"
            if kind in ("gradient", "applied"):
                self.seen = [s for s in self.seen if not (s.kind == kind and s.name == name)]
            self._add(kind, name, layer, layer_class, tensor)
            if int(place) >= 0 and self.seen and self.seen[-1].tensor is tensor:
                self.seen[-1].same = results[int(place)]

    # ------------------------------------------------------------

    def _add(self, kind: str, name: str, layer: str, layer_class: str, tensor: Any, shape: Any = None) -> None:
        if not self.options.wants(name, layer):
            return
        if not self._reachable(tensor):
            self.missed += 1
            return
        key = id(tensor)
        if kind == "activation" and key in self._tensor_ids:
            return  # a model's output is its last layer's: counted once
        self._tensor_ids.add(key)
        if shape is None:
            shape = None if tensor.shape.rank is None else tuple(-1 if d is None else d for d in tensor.shape)
        self.seen.append(Seen(kind, name, layer, layer_class, tensor, shape))

    def _reachable(self, tensor: Any) -> bool:
        """Whether a tensor can be read where the step ends, which those inside control flow cannot."""
        graph = getattr(tensor, "graph", None) if not hasattr(tensor, "numpy") else None
        return graph is None or graph is self._graph


def _shape(variable: Any) -> tuple[int, ...] | None:
    return tuple(variable.shape) if variable.shape.rank is not None else None


_current = threading.local()


def current() -> Collector | None:
    """The collector of the step that this thread runs or traces, if any."""
    return getattr(_current, "collector", None)


@contextmanager
def collecting(collector: Collector) -> Iterator[Collector]:
    """Hooks of this thread hand what they see to `collector` inside."""
    before = current()
    _current.collector = collector
    try:
        yield collector
    finally:
        _current.collector = before


@contextmanager
def paused() -> Iterator[None]:
    """Hooks see nothing inside."""
    before = current()
    _current.collector = None
    try:
        yield
    finally:
        _current.collector = before


def _flat_gradients(gradients: Any) -> list[Any]:
    """Flat list in which IndexedSlices stay whole and None keeps its place."""
    if isinstance(gradients, list | tuple):
        return [g for part in gradients for g in _flat_gradients(part)]
    if isinstance(gradients, dict):
        return [g for key in sorted(gradients) for g in _flat_gradients(gradients[key])]
    return [gradients]


def leaves(structure: Any, names: list[str] | None) -> list[tuple[str, Any]]:
    """(name, value) of each part of a batch; `names` are those of its outermost parts."""
    if isinstance(structure, dict):
        return [leaf for key in structure for leaf in _prefixed(str(key), structure[key])]
    if isinstance(structure, list | tuple):
        labels = names or []
        return [
            leaf
            for index, part in enumerate(structure)
            for leaf in _prefixed(labels[index] if index < len(labels) else str(index), part)
        ]
    return [(names[0] if names else "x", structure)]


def _prefixed(prefix: str, part: Any) -> list[tuple[str, Any]]:
    if isinstance(part, dict | list | tuple):
        return [(f"{prefix}/{path}", value) for path, value in leaves(part, None)]
    return [(prefix, part)]
