"""Kernels drawn anew before the first step: He's for relu and its like, Glorot's for the rest, orthogonal for
recurrent ones. The draws come from a generator of their own, so that the program's random numbers stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.record import distribution
from tb_nanwatch.record.applied.remedy import GraphLoop, Loop, NotApplicable, Remedy
from tb_nanwatch.record.naming import NamedVariable, Names
from tb_nanwatch.record.replay import draws
from tb_nanwatch.record.replay.draws import Kernel

RELUS: Final = frozenset(
    ("relu", "relu6", "leaky_relu", "leakyrelu", "prelu", "elu", "gelu", "silu", "swish", "softplus", "mish")
)
BOUNDED: Final = frozenset(("sigmoid", "tanh", "softmax", "softsign", "hard_sigmoid", "hard_tanh"))
KNOWN: Final = RELUS | BOUNDED
_NO_KERNEL: Final = ("Embedding", "Normalization")  # in the name of a class: its weights are no matrices of a product


class Initializer(Remedy):
    """Every kernel (trained, of rank 2 or more) from the initializer that its activation asks for."""

    words = "kernels drawn anew: He for relu, Glorot else, orthogonal where recurrent"

    def begin(self, loop: Loop) -> None:
        super().begin(loop)
        _refuse_later(loop.iterations)
        if distribution.replicas(loop.names.strategy) > 1:
            raise NotApplicable("every replica has weights of its own")
        kernels = _kernels(loop.names.variables)
        activations = following(loop.names, loop.models)
        for number, named in enumerate(kernels):
            shape = tuple(named.variable.shape)
            values = draw(named.name, shape, activations.get(named.layer, ""), number)
            named.variable.assign(values.astype(named.variable.dtype.as_numpy_dtype))

    def begin_graph(self, loop: GraphLoop) -> None:
        _refuse_later(loop.iterations)
        kernels = _kernels(loop.weights)
        values = {
            v.variable.initializer.inputs[1]: draw(
                v.name, tuple(v.variable.shape.as_list()), loop.layers.get(v.layer, ""), number
            ).astype(v.variable.dtype.base_dtype.as_numpy_dtype)
            for number, v in enumerate(kernels)
        }
        loop.run([v.variable.initializer for v in kernels], values)


def _refuse_later(iterations: int) -> None:
    if iterations > 0:
        raise NotApplicable(f"the training goes on after {iterations:,} updates; its weights are not the initial ones")


def _kernels(variables: Sequence[NamedVariable]) -> list[NamedVariable]:
    found = [
        v
        for v in variables
        if v.trainable and (v.variable.shape.rank or 0) >= 2 and not any(word in v.layer_class for word in _NO_KERNEL)
    ]
    if not found:
        raise NotApplicable("there is no kernel yet to draw before the first step: build the model before it trains")
    return found


def following(names: Names, models: Sequence[Any]) -> Mapping[str, str]:
    """The activation behind each layer, by path: its own, else that of the next layers up to one with a kernel."""
    found: dict[str, str] = {}
    waiting: list[str] = []  # layers whose activation comes behind them
    for model in models:
        for layer in _leaves(model):
            path, layer_class = names.layer(layer) or ("", "")
            function = getattr(layer, "activation", None)
            own = str(getattr(function, "__name__", function or "")).lower()
            own = own if own not in ("", "linear") else layer_class.lower() if layer_class.lower() in KNOWN else ""
            if own:
                found.update(dict.fromkeys(waiting, own))
            if own or any((v.shape.rank if hasattr(v.shape, "rank") else len(v.shape)) > 1 for v in layer.weights):
                waiting = []
            found[path] = own or "linear"
            waiting += [] if own else [path]
    return found


def _leaves(model: Any) -> list[Any]:
    flatten = getattr(model, "_flatten_layers", None)
    layers = [] if flatten is None else list(flatten(include_self=False))
    return [layer for layer in layers if not list(layer._flatten_layers(include_self=False))]


def draw(name: str, shape: tuple[int, ...], activation: str, number: int) -> NDArray[np.float32]:
    """float32[shape]: kernel `number` of a network. An activation that is not known counts as relu."""
    bounded = activation in BOUNDED or activation == "linear"
    own = name.rpartition("/")[2]
    kernel = Kernel(0, "Tanh" if bounded else "Relu", False, depthwise="depthwise" in own)
    if "recurrent" in own:
        kernel = Kernel(0, "Tanh", True)
    values, _ = draws.drawn(kernel, shape, np.random.default_rng((draws.SEED, number)))
    return values
