"""What a training step can change: variables, and the random states that Python holds.

A kept value is a reference, not a copy: TensorFlow writes to a buffer of its own as long as somebody else
holds the old one. Keeping a state costs one copy of what the next step changes.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from tb_nanwatch.record.naming import copies, handle_of

_VARIABLE_TYPES = frozenset({tf.resource})


class Handles:
    """Resource handles of all variables that the watched step reads or writes."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}  # id(handle) -> handle, dtype
        self._ours: dict[int, tuple[Any, Any]] = {}  # the recorder's
        self._names: dict[int, str] = {}
        self._copies: set[int] = set()  # ids of what further replicas have of a variable

    def add_graph(self, graph: Any, ours: Iterable[Any] = ()) -> None:
        """Variables that a traced graph captures; `ours` are the recorder's, which it may write."""
        for variable in ours:
            self._ours[id(variable.handle)] = (variable.handle, variable.dtype)
        for outside in graph.external_captures:
            self.add(outside)

    def add(self, handle: Any) -> None:
        if getattr(handle, "dtype", None) not in _VARIABLE_TYPES or not hasattr(handle, "numpy"):
            return
        if id(handle) in self._known or id(handle) in self._ours:
            return
        data = getattr(handle, "_handle_data", None)
        if data is not None and data.is_set and len(data.shape_and_type) == 1:
            self._known[id(handle)] = (handle, tf.dtypes.as_dtype(data.shape_and_type[0].dtype))

    def add_variables(self, variables: Iterable[Any]) -> None:
        for variable in variables:
            for one in copies(variable):
                handle = handle_of(one)
                if handle is not None:
                    self.add(handle)

    def learn_names(self, variables: Iterable[Any]) -> None:
        """The names of variables by their own path, as Keras has them, or name."""
        for variable in variables:
            name = getattr(variable, "path", None) or getattr(variable, "name", "")
            self._names[id(handle_of(variable))] = str(name).split(":")[0]
            self._copies |= {id(handle_of(one)) for one in copies(variable)[1:]}
        unknown = [handle for number, (handle, _) in self._known.items() if number not in self._names]
        referrers = gc.get_referrers(*unknown) if unknown else []  # a graph knows handles alone
        attributes = [
            one for one in referrers if type(one) is dict and "_handle" in one
        ]  # of variables, some have such
        for variable in [*referrers, *(gc.get_referrers(*attributes) if attributes else ())]:
            if isinstance(variable, tf.Variable):
                self._names[id(variable.handle)] = variable.name.split(":")[0]

    def name(self, handle: Any) -> str:
        """The variable's own path or name, empty where only a graph knows it."""
        return self._names.get(id(handle), "")

    def is_copy(self, handle: Any) -> bool:
        """Whether it is what another replica than the first has of a variable, of those whose names were learnt."""
        return id(handle) in self._copies

    def is_ours(self, handle: Any) -> bool:
        """Whether the variable is the recorder's."""
        return id(handle) in self._ours

    def ids(self) -> set[int]:
        """Ids of the handles of the run's variables."""
        return set(self._known)

    def read_one(self, number: int) -> tuple[Any, Any, Any] | None:
        """(handle, dtype, value now) of one of `ids`; None where it has no value yet."""
        handle, dtype = self._known[number]
        with tf.init_scope():
            if not tf.raw_ops.VarIsInitializedOp(resource=handle):
                return None
            return handle, dtype, tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)

    def read(self) -> list[tuple[Any, Any, Any]]:
        known = (*self._known.values(), *self._ours.values())
        return [(h, d, tf.raw_ops.ReadVariableOp(resource=h, dtype=d)) for h, d in known]


@dataclass(frozen=True)
class RandomState:
    """Random states outside variables: Python's, numpy's and that of eager TensorFlow ops."""

    python: Any
    numpy: Any
    eager: Any

    @classmethod
    def now(cls) -> RandomState:
        generator = getattr(context.context(), "_rng", None)
        return cls(random.getstate(), np.random.get_state(), None if generator is None else generator.getstate())  # noqa: NPY002

    def put_back(self) -> None:
        random.setstate(self.python)
        np.random.set_state(self.numpy)  # noqa: NPY002
        generator = getattr(context.context(), "_rng", None)
        if generator is not None and self.eager is not None:
            generator.setstate(self.eager)


def draw_elsewhere() -> None:
    """Let eager ops draw numbers that the run itself does not draw later.

    An eager random op is a kernel of its own for every seed and goes on where it stopped: one that was run with a seed
    of the run's future would not begin anew when the run comes to it. Putting a RandomState back ends this.
    """
    generator = getattr(context.context(), "_rng", None)
    if generator is not None:
        generator.seed(0x6E616E)


@dataclass(frozen=True)
class State:
    """A state of the training that can be put back."""

    values: list[tuple[Any, Any, Any]]
    randomness: RandomState

    @classmethod
    def now(cls, handles: Handles) -> State:
        return cls(handles.read(), RandomState.now())

    def of_those_in(self, earlier: State) -> State:
        """Without the variables that an earlier state did not know, as the slots that an optimizer made since."""
        known = {id(handle) for handle, _, _ in earlier.values}
        return State([value for value in self.values if id(value[0]) in known], self.randomness)

    def with_others(self, values: Iterable[tuple[Any, Any]]) -> State:
        """And (variable, value) of variables that were not there yet when this was kept."""
        known = {id(handle) for handle, _, _ in self.values}
        others = [(handle_of(v), v.dtype, value) for v, value in values]
        new = [(h, d, value) for h, d, value in others if h is not None and id(h) not in known]
        return State([*self.values, *new], self.randomness)

    def put_back(self) -> None:
        for handle, _, value in self.values:
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)
        self.randomness.put_back()
