"""A copy of a graph in which functions, loops and branches are no calls any more but ops among the others.

TensorFlow's own optimizer inlines them and leaves the rest alone. The copy keeps of each op the function that it
was in and its name there, so that the user's op, and with it the line, is found again.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, rewriter_config_pb2
from tensorflow.python.grappler import tf_optimizer

#: Attributes of calls and functions that keep TensorFlow from inlining: the copy is only looked at.
_KEEP_APART: Final = ("_XlaMustCompile", "_noinline", "api_implements", "api_preferred_device")

_GRADIENT: Final = re.compile(r"(?:^|/)gradients(?:_\d+)?/(.+?)_grad(?:/|$)")


@dataclass(frozen=True)
class Flat:
    """The copy as a definition and as a graph; losses and gradients are its tensors."""

    definition: Any
    graph: Any
    losses: Sequence[Any]
    gradients: Sequence[Any]
    _user: Any
    _places: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # op -> function and the op's name in it

    def original(self, op: Any) -> Any:
        """The op of the user's graph or function that an op of the copy stands for; itself where that is not known."""
        function, name = self._places.get(op.name, ("", op.name))
        try:
            graph = self._user._get_function(function).graph if function else self._user
        except AttributeError:  # a function that was loaded, and made by no code of today
            return op
        for known in (name, name.removesuffix("_0")):  # so is called in a function what is named as one of its results
            with contextlib.suppress(KeyError, ValueError):
                found = graph.get_operation_by_name(known)
                if found.type == op.type:
                    return found
        return op

    def forward_of(self, op: Any, original: Any, forward: Collection[Any]) -> Any:
        """The op among `forward` that a gradient op belongs to, None if there is none.

        `original`: the user's op, where TensorFlow noted it. It does not inside functions; there the scope of a
        gradient is named by the op, and the function by the one that it is the gradient of.
        """
        function, name = self._places.get(op.name, ("", op.name))
        scoped = _GRADIENT.search(name)
        wanted = original.name if original is not None else scoped.group(1) if scoped else ""
        same = [o for o in forward if self._places.get(o.name, ("", o.name))[1] == wanted and o.type != "Identity"]
        return max(same, key=lambda o: _alike(self._places.get(o.name, ("", ""))[0], function), default=None)


def _alike(one: str, other: str) -> int:
    """How many letters two names begin with in common."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def flatten(
    graph: Any, losses: Sequence[Any], gradients: Sequence[Any], keep: Sequence[str], feeds: Mapping[str, Any]
) -> Flat:
    """The copy of a graph; `keep`: names of ops that must stay beside those that losses and gradients need.

    Raises what TensorFlow's optimizer raises.
    """
    definition = graph.as_graph_def()
    ends = [f"nanwatch/{kind}/{n}" for kind, ts in (("loss", losses), ("gradient", gradients)) for n in range(len(ts))]
    for end, tensor in zip(ends, [*losses, *gradients], strict=True):
        node = definition.node.add(name=end, op="Identity", input=[tensor.name])
        node.attr["T"].type = tensor.dtype.base_dtype.as_datatype_enum
    if definition.library.function:
        fed = [name.partition(":")[0] for name in feeds]
        definition = _inlined(definition, [*ends, *keep, *fed])
    copy = tf.Graph()
    with copy.as_default():
        tf.import_graph_def(definition, name="")
    places = {
        node.name: (info.original_func_names[0], info.original_node_names[0])
        for node in definition.node
        if (info := node.experimental_debug_info).original_func_names and info.original_node_names
    }
    tensors = [copy.get_tensor_by_name(f"{end}:0") for end in ends]
    return Flat(definition, copy, tensors[: len(losses)], tensors[len(losses) :], graph, places)


def _inlined(definition: Any, keep: Sequence[str]) -> Any:
    for function in definition.library.function:
        _drop(function)
        for node in function.node_def:
            _drop(node)
    for node in definition.node:
        _drop(node)
    meta = meta_graph_pb2.MetaGraphDef(graph_def=definition)
    meta.collection_def["train_op"].node_list.value.extend(dict.fromkeys(keep))
    config = config_pb2.ConfigProto()
    options = config.graph_options.rewrite_options
    options.min_graph_nodes = -1
    options.optimizers.append("function")
    options.function_optimization = rewriter_config_pb2.RewriterConfig.AGGRESSIVE
    return tf_optimizer.OptimizeGraph(config, meta)


def _drop(holder: Any) -> None:
    for name in _KEEP_APART:
        if name in holder.attr:
            del holder.attr[name]
