"""Stable names: a layer by its path in the model, a variable by its layer and its own name.

Names of a Keras model are found by walking what contains what, so that they do not depend on how the model was
built or called: `decoder/dec_out/kernel`. In a tf.Module it is the attribute path, for a bare list of
variables their own names. Doubled names are numbered in the order met.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

#: Layers that are activations.
_ACTIVATIONS: Final = {
    "ELU": "elu",
    "LeakyReLU": "leaky_relu",
    "PReLU": "prelu",
    "ReLU": "relu",
    "Softmax": "softmax",
}


@dataclass(frozen=True)
class NamedVariable:
    """A variable to watch. `variable` is a tf.Variable."""

    name: str
    layer: str
    layer_class: str
    variable: Any
    trainable: bool


class Names:
    """Names of the layers and variables of one or several models, modules or lists of variables."""

    def __init__(self) -> None:
        self.variables: list[NamedVariable] = []
        self.metrics: list[NamedVariable] = []
        self._layers: dict[int, tuple[str, str]] = {}  # id(layer) -> path, class
        self._activations: dict[str, str] = {}  # by path
        self._kept: list[Any] = []  # ids stay valid while the objects live
        self._models: list[tuple[Any, str]] = []  # with their prefixes
        self._modules: list[tuple[Any, str]] = []
        self._submodules: dict[int, tuple[str, str]] = {}  # id(module) -> path, class; as they were asked for
        self._strangers: set[int] = set()  # ids of layers and handles that are in none of them
        self._by_handle: dict[int, NamedVariable] = {}
        self._taken: set[str] = set()
        self.strategy: Any = None  # the tf.distribute.Strategy under which the variables were made

    # ------------------------------------------------------------ reading names

    def layer(self, layer: Any) -> tuple[str, str] | None:
        """(path, class name) of a known layer, None for others; the path of a model itself is empty."""
        if id(layer) not in self._layers:
            self._look_again_for(layer)
        return self._layers.get(id(layer))

    def variable(self, variable: Any) -> NamedVariable | None:
        """A watched variable, None for others."""
        handle = handle_of(variable)
        if handle is not None and id(handle) not in self._by_handle:
            self._look_again_for(handle)
        return None if handle is None else self._by_handle.get(id(handle))

    def handles(self) -> frozenset[int]:
        """What tells whether two watchers watch the same variables; valid while both live."""
        return frozenset(self._by_handle)

    def by_handle(self, handle: Any) -> NamedVariable | None:
        """The watched variable that has this handle, in any replica."""
        return self._by_handle.get(id(handle)) or self._by_handle.get(id(first_copy(handle)))

    def __bool__(self) -> bool:
        return bool(self._layers)

    def activation(self, path: str) -> str:
        """The function that a Keras layer ends with, "relu"; empty where it has none or is the user's own."""
        return self._activations.get(path.partition(":")[0], "")

    def submodule(self, module: Any) -> tuple[str, str]:
        """(attribute path, class name) of a tf.Module inside one that is watched, (its own name, class name) of a
        stranger; the path of a watched module itself is empty.
        """
        if id(module) in self._layers:  # a Keras layer whose `call` the program calls itself
            return self._layers[id(module)]
        if id(module) not in self._submodules:
            self._kept.append(module)
            found = (
                _parts(prefix, path)
                for root, prefix in self._modules
                for path, _ in root._flatten(predicate=lambda part: part is module, with_path=True)
            )
            watched = any(module is root for root, _ in self._modules)
            path = "" if watched else "/".join(next(found, ())) or str(module.name)
            self._submodules[id(module)] = (path, type(module).__name__)
        return self._submodules[id(module)]

    # ------------------------------------------------------------ learning names

    def add_model(self, model: Any, prefix: str = "") -> None:
        """A Keras model or layer (Keras 3 or 2) with all that it contains."""
        if id(model) not in self._layers:
            self._know(model, prefix)
            self._models.append((model, prefix))
            self._walk_model(model, prefix)

    def add_module(self, module: Any, prefix: str = "") -> None:
        """A tf.Module: variables by attribute path, and the Keras layers in it, which are no modules."""
        self._modules.append((module, prefix))
        self._walk_module(module, prefix)

    def add_variables(self, variables: Iterable[Any]) -> None:
        """Variables that belong to nothing."""
        for variable in variables:
            name = _own_name(variable)
            self._add_variable(variable, name.rpartition("/")[0], "", name)

    def look_again(self) -> None:
        """Learn what models and modules have made since: layers are built, and metrics made, by the first step."""
        for model, prefix in list(self._models):
            self._walk_model(model, prefix)
        for module, prefix in self._modules:
            self._walk_module(module, prefix)

    def _look_again_for(self, thing: Any) -> None:
        """The same if this thing was not met before."""
        if id(thing) not in self._strangers and (self._models or self._modules):
            self.look_again()
            if id(thing) not in self._layers and id(thing) not in self._by_handle:
                self._strangers.add(id(thing))
                self._kept.append(thing)

    def _walk_model(self, model: Any, prefix: str) -> None:
        self._add_contents(model, prefix, set())
        for variable in made(model, "weights"):  # what no walk along attributes finds
            self._add_variable(variable, "", "", getattr(variable, "path", None) or variable.name)
        known = {id(metric.variable) for metric in self.metrics}
        for metric in getattr(model, "metrics", None) or []:
            for variable in metric.variables:  # each replica has its own
                for raw in copies(variable):
                    if raw.dtype.is_floating and id(raw) not in known:
                        self.metrics.append(NamedVariable(f"{metric.name}/{_own_name(variable)}", "", "", raw, False))

    def _walk_module(self, module: Any, prefix: str) -> None:
        for path, found in module._flatten(predicate=lambda v: _is_variable(v) or is_layer(v), with_path=True):
            parts = _parts(prefix, path)
            if not is_layer(found):
                self._add_variable(found, "/".join(parts[:-1]), "", "/".join(parts))
            elif id(found) not in self._layers:
                self.add_model(found, self._unique("/".join(parts)))

    def _add_contents(self, layer: Any, path: str, visited: set[int]) -> None:
        own = [*getattr(layer, "_trainable_variables", ()), *getattr(layer, "_non_trainable_variables", ())]
        own += [*getattr(layer, "_trainable_weights", ()), *getattr(layer, "_non_trainable_weights", ())]
        for variable in own:
            if not _is_metric_or_seed(variable):
                name = _own_name(variable).rpartition("/")[2]
                self._add_variable(variable, path, type(layer).__name__, f"{path}/{name}" if path else name)
        for child in _children(layer):
            if id(child) not in visited:
                visited.add(id(child))
                if id(child) not in self._layers:
                    self._know(child, self._unique(f"{path}/{child.name}" if path else child.name))
                self._add_contents(child, self._layers[id(child)][0], visited)

    def _know(self, layer: Any, path: str) -> None:
        self._layers[id(layer)] = (path, type(layer).__name__)
        self._activations[path] = activation_of(layer)
        self._kept.append(layer)

    def _add_variable(self, variable: Any, layer: str, layer_class: str, name: str) -> None:
        raw = raw_variable(variable)
        handle = handle_of(raw)
        if handle is None or id(handle) in self._by_handle or not raw.dtype.is_floating:
            return
        self.strategy = self.strategy or _strategy(variable)
        trainable = bool(getattr(variable, "trainable", False))
        named = NamedVariable(self._unique(name.split(":", maxsplit=1)[0]), layer, layer_class, raw, trainable)
        self.variables.append(named)
        self._by_handle[id(handle)] = named

    def _unique(self, name: str) -> str:
        unique, number = name, 0
        while unique in self._taken:
            number += 1
            unique = f"{name}_{number}"
        self._taken.add(unique)
        return unique


def _parts(prefix: str, path: Iterable[Any]) -> list[str]:
    """The parts of the name of what lies at an attribute path."""
    return [*([prefix] if prefix else []), *map(str, path)]


def activation_of(layer: Any) -> str:
    """The function that a layer of Keras itself ends with; a user's own layer may do anything with its activation."""
    cls = type(layer)
    if not cls.__module__.startswith(("keras.", "tf_keras.")):
        return ""
    if cls.__name__ in _ACTIVATIONS:
        return _ACTIVATIONS[cls.__name__]
    function = getattr(layer, "activation", None)
    if function is None or isinstance(function, str):
        return function or ""
    name = str(getattr(function, "__name__", type(function).__name__))
    return _ACTIVATIONS.get(name, name)


def raw_variable(variable: Any) -> Any:
    """The tf.Variable inside a Keras 3 variable, the first copy of a mirrored one, any other variable as it is."""
    return copies(variable)[0]


def copies(variable: Any) -> tuple[Any, ...]:
    """The tf.Variables behind a variable: one for each replica of this process, mostly a single one."""
    inner = _unwrapped(variable)
    several = getattr(inner, "values", None)
    return several if isinstance(several, tuple) and several else (inner,)


def _unwrapped(variable: Any) -> Any:
    inner = getattr(variable, "_value", None)
    return variable if inner is None or not hasattr(inner, "assign") else inner


def _strategy(variable: Any) -> Any:
    """The strategy under which a variable was made, None without one."""
    inner = _unwrapped(variable)
    return getattr(inner, "distribute_strategy", None) or getattr(inner, "_distribute_strategy", None)


def handle_of(variable: Any) -> Any:
    """The resource handle of a variable, None where it has none."""
    return getattr(raw_variable(variable), "handle", None)


def first_copy(handle: Any) -> Any:
    """The handle that the first replica has of the variable of which this one may be another replica's."""
    whole = _mirrored(handle)
    return handle if whole is None else handle_of(whole)


def everywhere(variable: Any) -> tuple[Any, ...]:
    """A tf.Variable as all replicas of this process have it."""
    whole = _mirrored(getattr(variable, "handle", None))
    return (variable,) if whole is None else copies(whole)


def _mirrored(handle: Any) -> Any:
    """The variable of a strategy to which this handle of one replica belongs, None without one."""
    container = getattr(handle, "_distributed_container", None)
    return None if container is None else container()


def made(holder: Any, what: str) -> list[Any]:
    """The `weights` or `variables` of a model, layer, module or optimizer, as far as there are any yet."""
    try:
        found = getattr(holder, what, ())
        return list(found() if callable(found) else found)
    except ValueError:  # Keras 2, of a model that is not built
        return []


def _own_name(variable: Any) -> str:
    return str(getattr(variable, "name", "variable")).split(":")[0]


def is_layer(value: Any) -> bool:
    """Whether this is a Keras layer or model, of Keras 3 or 2."""
    return hasattr(value, "weights") and hasattr(value, "call")


def _is_variable(value: Any) -> bool:
    return hasattr(value, "assign") and handle_of(value) is not None


def _is_metric_or_seed(variable: Any) -> bool:
    return "seed_generator" in str(getattr(variable, "path", ""))


def _children(layer: Any) -> list[Any]:
    """Layers directly inside a layer, in Keras 3 and 2; Keras 2 counts metrics among them."""
    flatten = getattr(layer, "_flatten_layers", None)
    children = [] if flatten is None else list(flatten(include_self=False, recursive=False))
    return [child for child in children if not any(c.__name__ == "Metric" for c in type(child).__mro__)]
