"""A copy of a graph in which functions, loops and branches are no calls any more but ops among the others.

TensorFlow's own optimizer inlines them and leaves the rest alone. The copy keeps of each op the function that it
was in and its name there, so that the user's op, and with it the line, is found again.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, rewriter_config_pb2
from tensorflow.python.grappler import tf_optimizer
from tensorflow.python.ops import script_ops

from tb_nanwatch.record.graph import walk

#: Attributes of calls and functions that keep TensorFlow from inlining: the copy is only looked at.
_KEEP_APART: Final = ("_XlaMustCompile", "_noinline", "api_implements", "api_preferred_device")

_VARIABLES: Final = (tf.compat.v1.GraphKeys.GLOBAL_VARIABLES, tf.compat.v1.GraphKeys.LOCAL_VARIABLES)
_TABLES: Final = tf.compat.v1.GraphKeys.TABLE_INITIALIZERS
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

    def of(self, op: Any) -> list[Any]:
        """The ops of the copy that stand for an op of the user's."""
        same = [one for one in self.graph.get_operations() if one.type == op.type]
        if op.graph is self._user or hasattr(op.graph, "outer_graph"):
            return [one for one in same if self.original(one) is op]
        return [one for one in same if one.name == op.name]  # an op of another copy, made by no code of today

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
    graph: Any, losses: Sequence[Any], gradients: Sequence[Any], keep: Sequence[str], feeds: Iterable[str]
) -> Flat:
    """The copy of what losses, gradients and the ops named in `keep` need of a graph; `feeds`: names of what is fed.

    Raises what TensorFlow's optimizer raises.
    """
    definition = graph.as_graph_def()
    ends = [f"nanwatch/{kind}/{n}" for kind, ts in (("loss", losses), ("gradient", gradients)) for n in range(len(ts))]
    for end, tensor in zip(ends, [*losses, *gradients], strict=True):
        node = definition.node.add(name=end, op="Identity", input=[tensor.name])
        node.attr["T"].type = tensor.dtype.base_dtype.as_datatype_enum
    fed = [graph.get_tensor_by_name(name) for name in feeds]
    _feed(definition, fed)
    kept = [*ends, *keep, *(tensor.op.name for tensor in fed)]
    kept += _reduce(definition, kept, _states(graph))
    if definition.library.function:
        definition = _inlined(definition, kept)
    copy = imported(definition, graph)
    places = {
        node.name: (info.original_func_names[0], info.original_node_names[0])
        for node in definition.node
        if (info := node.experimental_debug_info).original_func_names and info.original_node_names
    }
    tensors = [copy.get_tensor_by_name(f"{end}:0") for end in ends]
    return Flat(definition, copy, tensors[: len(losses)], tensors[len(losses) :], graph, places)


def imported(definition: Any, user: Any) -> Any:
    """A graph of a definition, with those variables and tables of the user's graph that are in it."""
    made = tf.Graph()
    there = {node.name for node in definition.node}
    with made.as_default():
        tf.import_graph_def(definition, name="")
        for key in _VARIABLES:
            for v in user.get_collection(key):
                if v.op.name in there:
                    made.add_to_collection(key, type(v).from_proto(v.to_proto()))
        for op in walk.fills(user):
            if op.name in there:
                made.add_to_collection(_TABLES, made.get_operation_by_name(op.name))
    return made


def config() -> Any:
    """For a session that runs one op after another, none moved or merged: then the order tells what came first."""
    made = tf.compat.v1.ConfigProto(device_count={"GPU": 0}, inter_op_parallelism_threads=1, allow_soft_placement=True)
    made.graph_options.rewrite_options.disable_meta_optimizer = True
    made.graph_options.optimizer_options.opt_level = -1
    return made


def call_of(
    definition: Any, name: str, function: Callable[..., Any], taken: Sequence[tuple[str, Any]], gives: int
) -> Any:
    """Add a call of `function` on tensors, (name, dtype) each, that puts out as many arrays of the first dtypes.

    The function must live as long as the graph runs.
    """
    kinds = [dtype.as_datatype_enum for _, dtype in taken]
    node = definition.node.add(name=name, op="PyFunc", input=[tensor for tensor, _ in taken])
    node.attr["token"].s = script_ops._py_funcs.insert(function).encode()
    node.attr["Tin"].list.type.extend(kinds)
    node.attr["Tout"].list.type.extend(kinds[:gives])
    return node


def rewire(nodes: Iterable[Any], instead: Mapping[str, str]) -> None:
    """Let ops take other tensors in place of some, by name."""
    for node in nodes:
        for place, name in enumerate(node.input):
            node.input[place] = instead.get(name if ":" in name else f"{name}:0", name)


def _feed(definition: Any, tensors: Sequence[Any]) -> None:
    """Let what is fed need nothing: an op that something else waits for would run, though its value is given."""
    single = {t.op.name: t for t in tensors if len(t.op.outputs) == 1}
    for node in definition.node:
        if node.name in single:
            tensor = single[node.name]
            node.Clear()
            node.name, node.op = tensor.op.name, "Placeholder"
            node.attr["dtype"].type = tensor.dtype.base_dtype.as_datatype_enum
            node.attr["shape"].shape.CopyFrom(tensor.shape.as_proto())


def _reduce(definition: Any, kept: Sequence[str], states: Mapping[str, Sequence[str]]) -> list[str]:
    """Leave only what the ops named in `kept` need; the names of what makes their variables and tables what they are.

    `states`: the latter by the name of the variable or table.
    """
    nodes = {node.name: node for node in definition.node}
    found: set[str] = set()
    begun: list[str] = []
    waiting = list(kept)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [i.removeprefix("^").partition(":")[0] for i in nodes[name].input]
            begun += states.get(name, ())
            waiting += states.get(name, ())
    left = [node for node in definition.node if node.name in found]
    del definition.node[:]
    definition.node.extend(left)
    return begun


def _states(graph: Any) -> dict[str, list[str]]:
    """Names of the ops that make variables and tables what they are, by the name of the variable's or table's op."""
    found: dict[str, list[str]] = {}
    for v in (v for key in _VARIABLES for v in graph.get_collection(key)):
        proto = v.to_proto()
        names = (proto.variable_name, proto.initializer_name, proto.initial_value_name, proto.snapshot_name)
        found.setdefault(v.op.name, []).extend(n.partition(":")[0] for n in names if n)
    for op in walk.fills(graph):
        found.setdefault(walk.home(op.inputs[0]).name, []).append(op.name)
    return found


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
