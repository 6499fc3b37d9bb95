"""A bound on gradients: on the global norm, or on every element.

Keras optimizers have it built in, behind the loss scale; it is set there. In a loop without one, what the tape gives is
clipped. In a graph of TensorFlow 1 the gradients that enter the optimizer's kernels are fed.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tb_nanwatch.record import collect
from tb_nanwatch.record.applied import pure
from tb_nanwatch.record.applied.remedy import Feeds, GraphLoop, NotApplicable, Remedy
from tb_nanwatch.record.graph import names as graph_names
from tb_nanwatch.record.optimizers import clips, inner_of, is_scaled
from tb_nanwatch.record.replay.switches import with_values


class ClipGradients(Remedy):
    """kind "norm": all gradients of a step scaled to a global norm of at most `bound`; "value": elements cut there."""

    def __init__(self, kind: str, bound: float) -> None:
        super().__init__()
        self._by_norm = kind == "norm"
        self._bound = bound
        self.words = f"gradients clipped by {'global norm' if self._by_norm else 'value'} {bound:g}"
        self._optimizers: dict[int, Any] = {}  # those that clip
        self._by_tape = False

    def applying(self, optimizer: Any) -> None:
        if self._by_tape:
            if is_scaled(optimizer):
                raise NotApplicable("the gradients are scaled by an optimizer that watch() was not given")
            return
        inner = inner_of(optimizer)
        if not clips(optimizer):
            raise NotApplicable(f"{type(inner).__name__} has no place for it")
        if id(inner) not in self._optimizers:
            self._optimizers[id(inner)] = inner
            clip = inner._clip_gradients  # with the bound that the user may have set
            object.__setattr__(inner, "_clip_gradients", lambda gradients: self._clipped(clip(gradients)))

    def gradients(self, sources: Any, gradients: Any, scaled: bool) -> Any:
        assert self.loop is not None
        flat = tf.nest.flatten(gradients)
        trained = all(self.loop.names.variable(source) is not None for source in tf.nest.flatten(sources))
        if any(map(clips, self.loop.optimizers)) or not trained or self._optimizers:
            return gradients
        if scaled:
            raise NotApplicable("the loss is scaled by an optimizer that watch() was not given")
        self._by_tape = True
        with collect.paused():
            return tf.nest.pack_sequence_as(gradients, self._clipped(flat))

    def _clipped(self, gradients: Sequence[Any]) -> list[Any]:
        gradients = list(gradients)
        if self._by_norm:
            return list(tf.clip_by_global_norm(gradients, self._bound)[0])
        cut = functools.partial(tf.clip_by_value, clip_value_min=-self._bound, clip_value_max=self._bound)
        return [None if g is None else with_values(g, cut) for g in gradients]

    def after_first_step(self) -> None:
        if not self._optimizers and not self._by_tape:
            raise NotApplicable("neither a Keras optimizer nor a gradient of the watched weights was seen in the step")

    # ------------------------------------------------------------ TensorFlow 1

    def begin_graph(self, loop: GraphLoop) -> None:  # noqa: ARG002
        self._by_tape = True  # what is fed is checked at every step

    def feeds(self, loop: GraphLoop, feeds: Feeds) -> dict[Any, Any]:
        found = {t.name: t for op in loop.training if (t := graph_names.gradient_of(op)) is not None}
        if not found:
            raise NotApplicable("no optimizer's kernel of this graph takes a gradient as an input")
        gradients = pure.read(loop, found.values(), feeds, "the gradients")
        return dict(zip(found.values(), self._clipped_arrays(gradients), strict=True))

    def _clipped_arrays(self, gradients: list[Any]) -> list[Any]:
        if not self._by_norm:
            return [np.clip(g, -self._bound, self._bound).astype(g.dtype) for g in gradients]
        norm = np.sqrt(sum(float(np.sum(np.square(g.astype(np.float64)))) for g in gradients))
        factor = min(1.0, self._bound / norm) if norm > 0 else norm + 1.0  # NaN stays NaN, as in TensorFlow
        factor = factor if np.isfinite(norm) else np.nan
        return [(g * factor).astype(g.dtype) for g in gradients]
