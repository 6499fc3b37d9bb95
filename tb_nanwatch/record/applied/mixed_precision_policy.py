"""float32 instead of a mixed policy: the layers compute in the type in which they keep their weights."""

from __future__ import annotations

from typing import Any

from tb_nanwatch.record.applied.remedy import GraphLoop, Loop, NotApplicable, Remedy


class Float32(Remedy):
    """The policy of every layer of a Keras model set to float32, after it was built and before it trains."""

    words = "float32 instead of the mixed policy"

    def begin(self, loop: Loop) -> None:
        super().begin(loop)
        layers = [layer for model in loop.models for layer in _flat(model)]
        mixed = [layer for layer in layers if getattr(layer, "compute_dtype", None) in ("float16", "bfloat16")]
        if not mixed:
            raise NotApplicable("no layer of a Keras model computes in a type smaller than float32")
        small = next((layer for layer in mixed if layer.variable_dtype != "float32"), None)
        if small is not None:
            raise NotApplicable(f"the weights of {small.name} are {small.variable_dtype} themselves")
        for layer in mixed:
            if hasattr(layer, "_set_dtype_policy"):  # Keras 2
                layer._set_dtype_policy("float32")
            else:
                layer.dtype_policy = "float32"

    def begin_graph(self, loop: GraphLoop) -> None:  # noqa: ARG002
        raise NotApplicable("the types of a graph are fixed when it is made")


def _flat(model: Any) -> list[Any]:
    flatten = getattr(model, "_flatten_layers", None)
    return [model] if flatten is None else list(flatten())
