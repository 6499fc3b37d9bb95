"""What an optimizer keeps of each weight, and the step in which one of these slots was lost.

A second moment whose square overflows leaves the weights as they are for a step: they change by something divided by
infinity. The next step makes NaN of it. So the step that is seen to be bad need not be the one that made it so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

from tb_nanwatch.record.naming import Names, copies, handle_of
from tb_nanwatch.record.optimizers import inner_of, variables_of
from tb_nanwatch.record.replay.memory import Call
from tb_nanwatch.record.replay.state import Handles, State

#: What lists of an optimizer of Keras hold, one slot for each weight.
_WORDS: Final = {
    "momentums": "momentum",
    "velocities": "second moment",
    "velocity_hats": "largest second moment",
    "average_gradients": "mean gradient",
    "accumulators": "sum of squared gradients",
    "accumulated_grads": "mean of squared gradients",
    "accumulated_delta_vars": "mean of squared updates",
    "linears": "linear term",
    "accumulated_gradients": "accumulated gradient",
    "m": "first moment",
    "u": "largest gradient",
}
_MOMENTS: Final = ("momentums", "velocities")  # an optimizer that has both keeps the first and the second moment


@dataclass(frozen=True)
class Lost:
    """A slot that is not finite. call: its place in the calls, -1 if it was bad before them; before: the state then."""

    name: str
    nan: bool
    call: int
    before: State


def named(optimizer: Any, names: Names) -> dict[int, str]:
    """Slots by id of their handles, in every replica: "Adam's second moment of dense/kernel"."""
    inner = inner_of(optimizer)
    if inner is None:
        return {}
    lists = {key.lstrip("_"): value for key, value in getattr(inner, "__dict__", {}).items() if isinstance(value, list)}
    weights = lists.pop("trainable_variables", [])
    found: dict[int, str] = {}
    for key, slots in lists.items():
        words = _WORDS.get(key)
        if words is None or len(slots) != len(weights):
            continue
        if key == "momentums" and all(lists.get(moment) for moment in _MOMENTS):
            words = "first moment"
        for weight, slot in zip(weights, slots, strict=True):
            known = names.variable(weight)
            name = _own_name(weight) if known is None else known.name
            found |= _by_copy(slot, f"{type(inner).__name__}'s {words} of {name}")
    for variable in variables_of([optimizer]):  # of other optimizers
        if "learning_rate" not in _own_name(variable) and getattr(variable.dtype, "is_floating", True):
            found |= {n: w for n, w in _by_copy(variable, _own_name(variable)).items() if n not in found}
    return found


def lost(
    shadow: State,
    before: State,
    calls: Sequence[Call],
    known: dict[int, str],
    handles: Handles,
    run: Callable[[Call], None],
) -> Lost | None:
    """The first slot that is bad `before` the last of `calls`, and the call that made it so; None if all are finite.

    `known` are the slots as `named` gives them; run(call) runs a step again as it ran.
    """
    if not _bad(before, known):
        return None
    shadow.put_back()
    first = _bad(shadow, known)
    if first:
        return Lost(*first[0], -1, shadow)
    for number, call in enumerate(calls[:-1]):
        then = State.now(handles)
        run(call)
        first = _bad(State.now(handles), known)
        if first:
            return Lost(*first[0], number, then)
    return None


def _bad(state: State, known: dict[int, str]) -> list[tuple[str, bool]]:
    """(name, whether it holds NaN) of the slots that are not finite."""
    values = {id(handle): value for handle, dtype, value in state.values if dtype.is_floating}
    bad = [(name, values[number]) for number, name in known.items() if number in values and not _finite(values[number])]
    return [(name, bool(tf.reduce_any(tf.math.is_nan(value)))) for name, value in bad]


def _finite(value: Any) -> bool:
    return bool(tf.reduce_all(tf.math.is_finite(value)))


def _by_copy(variable: Any, name: str) -> dict[int, str]:
    return {} if variable is None else {id(handle_of(one)): name for one in copies(variable)}


def _own_name(variable: Any) -> str:
    return str(getattr(variable, "path", None) or getattr(variable, "name", "")).split(":")[0]
