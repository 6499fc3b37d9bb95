"""A graph made ready to be watched: what there is to read, and which runs are training steps."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.python.client import session as session_module

from tb_nanwatch.errors import UsageError
from tb_nanwatch.record import fusion, kernels
from tb_nanwatch.record.applied.remedy import GraphLoop
from tb_nanwatch.record.collect import Seen
from tb_nanwatch.record.graph import applied, gauges, names, walk
from tb_nanwatch.record.graph.gauges import Pack, Single
from tb_nanwatch.record.options import Options

MOST_LAYOUTS: Final = 1000  # a program that makes new ops at every step is not remembered for ever


@dataclass(frozen=True, eq=False)
class Layout:
    """What is read of the runs that fetch and feed the same."""

    fed: tuple[Any, ...]  # floating tensors that are given from outside
    packs: tuple[Pack, ...]
    losses: tuple[Single, ...]
    rate: Single | None

    def fetches(self) -> list[Any]:
        """What to fetch beside the user's own."""
        rates = [] if self.rate is None else [self.rate.value]
        return [[(p.row, p.look) for p in self.packs], [loss.value for loss in self.losses], rates]


class WatchedGraph:
    """Adds the gauges to a graph. `compiled`: the session compiles parts of it with XLA, as it likes.

    Raises UsageError for a loss or gradients that are not of this graph, for a graph that is finalized, and for one in
    which nothing trains.
    """

    def __init__(self, graph: Any, options: Options, loss: Any, grads_and_vars: Any, compiled: bool) -> None:
        if graph.finalized:
            raise UsageError(
                "the graph is finalized, so that it cannot be watched: watch it before the session does that"
            )
        losses = _losses(graph, loss)
        pairs = _pairs(graph, grads_and_vars)
        self.graph = graph
        named = names.variables(graph, [v for _, v in pairs])
        if not named:
            raise UsageError("the graph has no trainable variables to watch: watch it when it is complete")
        by_op = {v.variable.op: v.variable for v in named}
        used = applied.gradients(graph.get_operations(), by_op)
        pairs = used if grads_and_vars is None else pairs
        tensors = [(kernels.measurable(gradient), v) for gradient, v in pairs]
        gradients = [(t, v) for t, v in tensors if t is not None]
        training = walk.training_ops(graph, [v.variable for v in named if v.trainable], gradients)
        if not training:
            raise UsageError(
                "nothing in the graph trains its variables: "
                "watch it after optimizer.minimize or apply_gradients was called"
            )
        self._training = frozenset(training)
        self._compiled = compiled
        self.weights = [v for v in named if options.wants(v.name, v.layer)]
        by_name = {v.variable.op: v for v in named}
        seen = names.inputs(graph.get_operations())
        seen += names.activations([t for _, t in losses], named) if options.activations else []
        seen += [
            Seen("gradient", by_name[v.op].name, by_name[v.op].layer, "", t, names.shape_of(v))
            for t, v in gradients
            if v.op in by_name and names.readable_here(t)
        ]
        self.layers = list(dict.fromkeys(s.layer.partition(":")[0] for s in seen if s.kind == "activation" and s.layer))
        self.layers = list(dict.fromkeys([*self.layers, *(v.layer for v in named if v.layer)]))
        given = {v.op: kernels.measurable(g) for g, v in pairs if g is not None}
        seen += [
            Seen("applied", by_name[v.op].name, by_name[v.op].layer, "", t, names.shape_of(v))
            for t, v in used
            if given.get(v.op, t) is not t and names.readable_here(t)
        ]
        wanted = [s for s in seen if options.wants(s.name, s.layer) and fusion.readable(s.tensor, compiled)]
        rate = next(iter(names.rates_of(training)), None)
        if rate is not None and not (names.readable_here(rate) and fusion.readable(rate, compiled)):
            rate = None
        self.gauges = gauges.build(graph, wanted, losses, rate, self.weights, training)
        self._layouts: dict[Any, tuple[Layout | None, Any]] = {}

    def layout(self, fetches: Any, feeds: Mapping[str, tuple[Any, Any]]) -> Layout | None:
        """What to read of a run, None if it is no training step. Raises what TensorFlow raises for invalid fetches."""
        key = (_signature(fetches), frozenset(feeds))
        if key not in self._layouts:
            if len(self._layouts) >= MOST_LAYOUTS:
                self._layouts.clear()
            self._layouts[key] = (
                self._new_layout(fetches, feeds),
                fetches,
            )  # ids in the key stay valid while fetches live
        return self._layouts[key][0]

    def loop(self, run: Callable[..., Any], may_feed_again: bool) -> GraphLoop:
        """What a remedy under trial is told of this graph; `run` is the session's own."""
        iterations = -1
        if self.gauges.iterations is not None:
            with contextlib.suppress(tf.errors.FailedPreconditionError):  # not initialized yet
                iterations = int(run(self.gauges.iterations))
        ends = {
            s.layer.partition(":")[0]: s.tensor.op.type.lower()
            for pack in self.gauges.packs
            for s in pack.members
            if s.kind == "activation"
        }
        training = sorted(self._training, key=lambda op: str(op.name))
        return GraphLoop(self.graph, run, training, self.weights, ends, iterations, may_feed_again)

    def _new_layout(self, fetches: Any, feeds: Mapping[str, tuple[Any, Any]]) -> Layout | None:
        handler = session_module._FetchHandler(self.graph, fetches, {})
        starts = [t.op for t in handler.fetches() if t.name not in feeds] + handler.targets()
        ran = walk.executed(starts, feeds)
        if not ran & self._training:
            return None

        def runs(tensor: Any) -> bool:
            return tensor.op in ran and tensor.name not in feeds

        fetched = {t.name for t in handler.fetches()}

        def may_be_read(loss: Any) -> bool:
            if loss.name in fetched:
                return True
            return fusion.readable(loss, self._compiled) if runs(loss) else self._harmless(loss, ran, feeds)

        rate = self.gauges.rate
        return Layout(
            tuple(t for t, value in feeds.values() if t.dtype in kernels.FLOATS and is_array(value)),
            tuple(pack for pack in self.gauges.packs if all(runs(s.tensor) for s in pack.members)),
            tuple(x for x in self.gauges.losses if may_be_read(x.source)),
            rate if rate is not None and runs(rate.source) else None,
        )

    def _harmless(self, tensor: Any, ran: Collection[Any], fed: Collection[str]) -> bool:
        """Whether a run may make a tensor that it would not make by itself: nothing else becomes different by it."""
        if tensor.name in fed:
            return False
        extra = walk.executed([tensor.op], fed) - set(ran)
        for op in extra:
            if op.type in ("Placeholder", "PlaceholderV2") or (op.op_def.is_stateful and op.type != "VarHandleOp"):
                return False
            shared = [t for t in op.inputs if t.op in ran and t.name not in fed]
            if not all(fusion.readable(t, self._compiled) for t in shared):
                return False
        return True


def feeds_of(graph: Any, feed_dict: Any) -> dict[str, tuple[Any, Any]]:
    """Tensor name to tensor and value, from a feed_dict as `Session.run` takes it."""
    found = {}
    for key, value in (feed_dict or {}).items():
        for part, part_value in _parts(key, value):
            tensor = graph.as_graph_element(part, allow_operation=False)
            found[tensor.name] = (tensor, part_value)
    return found


def arrays_of(layout: Layout, feeds: Mapping[str, tuple[Any, Any]]) -> list[Any]:
    """The fed arrays that a layout measures, in the type in which the graph sees them."""
    return [np.asarray(feeds[t.name][1], t.dtype.as_numpy_dtype) for t in layout.fed]


def _parts(key: Any, value: Any) -> list[tuple[Any, Any]]:
    if isinstance(key, tf.SparseTensor):
        return list(zip((key.indices, key.values, key.dense_shape), value, strict=True))
    if isinstance(key, tuple | list):
        return [pair for k, v in zip(key, value, strict=True) for pair in _parts(k, v)]
    return [(key, value)]


def is_array(value: Any) -> bool:
    """Whether what is fed is numbers, rather than strings, a sparse value or a handle."""
    return isinstance(value, np.ndarray | np.generic | list | tuple | float | int)


def _signature(fetches: Any) -> Any:
    """What tells fetches apart, without asking TensorFlow."""
    if isinstance(fetches, list | tuple):
        return tuple(_signature(f) for f in fetches)
    if isinstance(fetches, dict):
        return tuple((str(k), _signature(v)) for k, v in fetches.items())
    if isinstance(fetches, str):
        return fetches
    return fetches.name if isinstance(fetches, tf.Tensor | tf.Operation) else id(fetches)


def _losses(graph: Any, loss: Any) -> list[tuple[str, Any]]:
    """(name, tensor) of the losses: those given, else what the graph's collection of losses holds."""
    given = loss if loss is not None else graph.get_collection(tf.compat.v1.GraphKeys.LOSSES)
    if isinstance(given, Mapping):
        pairs = [(str(k), t) for k, t in given.items()]
    else:
        several = given if isinstance(given, Sequence) else [given]
        pairs = [("loss" if len(several) == 1 else t.op.name, t) for t in several if _of_graph(graph, t, "loss")]
    for name, t in pairs:
        _of_graph(graph, t, "loss")
        if t.dtype not in kernels.FLOATS:
            raise UsageError(f"the loss {name!r} is of type {t.dtype.name}, not a floating type")
    return pairs


def _pairs(graph: Any, grads_and_vars: Any) -> list[tuple[Any, Any]]:
    pairs = []
    for pair in grads_and_vars or ():
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not hasattr(pair[1], "op"):
            raise UsageError(
                "grads_and_vars takes pairs of gradient and variable, as optimizer.compute_gradients gives them, "
                f"not {type(pair).__name__}"
            )
        _of_graph(graph, pair[1], "grads_and_vars")
        if pair[0] is not None:
            _of_graph(graph, pair[0], "grads_and_vars")
        pairs.append((pair[0], pair[1]))
    return pairs


def _of_graph(graph: Any, tensor: Any, argument: str) -> bool:
    try:
        mine = tensor.graph is graph
    except AttributeError:  # a number, an eager tensor
        mine = False
    if not mine:
        raise UsageError(f"{argument}= holds {tensor!r}, which is no tensor of the graph that the session runs")
    return True


def compiles(session: Any) -> bool:
    """Whether a session hands parts of its graph to XLA by itself."""
    options = getattr(getattr(session, "_config", None), "graph_options", None)
    level = 0 if options is None else options.optimizer_options.global_jit_level
    return level > 0 or "tf_xla_auto_jit" in os.environ.get("TF_XLA_FLAGS", "")
