"""Where the tensors come from: calls that every training step makes are listened to while it is traced.

Listened to are the calls of layers (Keras 3 and 2), `GradientTape.gradient`, `apply` of optimizers and the scaling of
losses; and strategies are, when they run a function in every replica. The hooks are in place only while a watched step
runs or is traced, in any thread; they call the original first, hand its result to the collector of their own thread,
and return it untouched.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import mirrored_run

from tb_nanwatch.record import collect, distribution, functions, policy
from tb_nanwatch.record.guard import Guard

_lock = threading.Lock()
_depth = 0
_undo: list[Callable[[], None]] = []


@contextmanager
def installed(guard: Guard) -> Iterator[None]:
    """Hooks are in place inside, if they can be; nesting and several threads are fine."""
    global _depth
    with _lock:
        _depth += 1
    try:
        with guard.contained("placing hooks"), _lock:
            if not _undo:
                _install()
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                while _undo:
                    _undo.pop()()


def _install() -> None:
    _hook(tf.GradientTape, "gradient", _on_gradient)
    for name in ("jacobian", "batch_jacobian"):
        _hook(tf.GradientTape, name, _on_jacobian)
    _hook(functions.Function, "__call__", functions.call_nested)
    _hook_replicas()
    for module in ("keras.src.layers.layer", "tf_keras.src.engine.base_layer"):
        if module in sys.modules:
            _hook(sys.modules[module].Layer, "__call__", _on_call)
    for module, name in (
        ("keras.src.optimizers.base_optimizer", "BaseOptimizer"),
        ("tf_keras.src.optimizers.optimizer", "_BaseOptimizer"),
    ):
        if module in sys.modules:
            for cls in _with_subclasses(getattr(sys.modules[module], name)):
                if "apply" in vars(cls):
                    _hook(cls, "apply", _on_apply)
                if "apply_gradients" in vars(cls):
                    _hook(cls, "apply_gradients", _on_apply_gradients)
                if "scale_loss" in vars(cls):
                    _hook(cls, "scale_loss", _on_scale_loss)
                if "_clip_gradients" in vars(cls):
                    _hook(cls, "_clip_gradients", _on_clip)


def _with_subclasses(cls: Any) -> list[Any]:
    found = [cls]
    for subclass in cls.__subclasses__():
        found += [c for c in _with_subclasses(subclass) if c not in found]
    return found


def _hook(cls: type, name: str, listen: Callable[..., Any]) -> None:
    original = vars(cls)[name]

    def hooked(self: Any, *args: Any, **kwargs: Any) -> Any:
        collector = collect.current()
        if collector is None:
            return original(self, *args, **kwargs)
        return listen(collector, original, self, *args, **kwargs)

    hooked.__name__, hooked.__qualname__ = name, f"{cls.__qualname__}.{name}"
    hooked.__wrapped__ = original  # type: ignore[attr-defined]  # inspect.signature follows it
    hooked = tf.autograph.experimental.do_not_convert(hooked) if name != "__call__" else hooked
    setattr(cls, name, hooked)
    _undo.append(lambda: setattr(cls, name, original))


def _hook_replicas() -> None:
    """Beneath `strategy.run`, where tf.functions that it was given are opened and converted by autograph already."""
    original = mirrored_run._call_for_each_replica

    def hooked(strategy: Any, function: Any, args: Any, kwargs: Any) -> Any:
        collector = collect.current()
        if collector is None:
            return original(strategy, function, args, kwargs)
        return distribution.in_replicas(collector, original, strategy, function, args, kwargs)

    mirrored_run._call_for_each_replica = hooked
    _undo.append(lambda: setattr(mirrored_run, "_call_for_each_replica", original))


def _on_call(collector: Any, original: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
    with collector.observed("layer", *(collector.place(layer) if collector.observer is not None else ())):
        outputs = original(layer, *args, **kwargs)
    with collector.guard.contained(f"reading the output of layer {getattr(layer, 'name', layer)}"):
        collector.activation(layer, outputs)
    return outputs


def _on_gradient(collector: Any, original: Any, tape: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
    with collector.observed("stage", "backward"):
        gradients = original(tape, target, sources, *args, **kwargs)
    with collector.guard.contained("reading gradients"):
        collector.gradients(target, sources, gradients)
    if collector.trying is not None:
        gradients = collector.trying.gradients(sources, gradients, bool(collector.scaled_losses()))
    return gradients


def _on_jacobian(collector: Any, original: Any, tape: Any, *args: Any, **kwargs: Any) -> Any:
    """It asks the tape for gradients of single numbers, which are no gradients of a loss."""
    with collector.observed("stage", "backward"), collect.paused():
        return original(tape, *args, **kwargs)


def _on_scale_loss(collector: Any, original: Any, optimizer: Any, loss: Any) -> Any:
    scaled = original(optimizer, loss)
    if scaled is not loss:
        collector.scaled_loss(loss, scaled)
    return scaled


def _on_clip(collector: Any, original: Any, optimizer: Any, grads: Any) -> Any:
    grads = list(grads)
    clipped = original(optimizer, grads)
    if clipped is not grads:
        with collector.guard.contained("reading clipped gradients"):
            collector.clipped(grads, clipped)
    return clipped


def _on_apply(collector: Any, original: Any, optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
    """Keras 3. Wrapping optimizers call an inner one's apply, often inside a cond: only the outermost counts."""
    if collector.optimizer_depth:
        return original(optimizer, grads, trainable_variables)
    grads = list(grads)
    variables = list(trainable_variables or getattr(optimizer, "_trainable_variables", ()))
    return _outermost(collector, optimizer, variables, grads, lambda: original(optimizer, grads, trainable_variables))


def _on_apply_gradients(
    collector: Any, original: Any, optimizer: Any, grads_and_vars: Any, *args: Any, **kwargs: Any
) -> Any:
    """Keras 3 comes back through `apply`; Keras 2 ends here."""
    if collector.optimizer_depth or "apply" in dir(type(optimizer)):
        return original(optimizer, grads_and_vars, *args, **kwargs)
    pairs = list(grads_and_vars)
    grads, variables = [g for g, _ in pairs], [v for _, v in pairs]
    return _outermost(collector, optimizer, variables, grads, lambda: original(optimizer, pairs, *args, **kwargs))


def _outermost(collector: Any, optimizer: Any, variables: list[Any], grads: list[Any], apply: Callable[[], Any]) -> Any:
    with collector.guard.contained("reading what an optimizer applies"):
        collector.applied(optimizer, variables, grads)
    if collector.trying is not None:
        collector.trying.applying(optimizer)
    collector.optimizer_depth += 1
    try:
        if collector.options.on_nonfinite == "skip":
            return policy.apply_if_finite(optimizer, variables, grads, apply)
        with collector.observed("stage", "update"):
            return apply()
    finally:
        collector.optimizer_depth -= 1
