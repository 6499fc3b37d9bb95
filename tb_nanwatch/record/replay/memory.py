"""The shadow and the steps since: what is needed to be back before any recent step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tb_nanwatch.record.replay.state import Handles, RandomState, State

EVERY: Final = 64  # steps between shadows


@dataclass(frozen=True)
class Ways:
    """How a step can be run on what it was given.

    run(data) trains as the run does, by_hand(data) eagerly and unwatched, fresh() makes a function of data that
    trains as the run does but is traced anew. inputs(data) are the tensors that the step is given, for names.
    """

    run: Callable[[Any], Any]
    by_hand: Callable[[Any], Any]
    fresh: Callable[[], Callable[[Any], Any]] | None = None
    inputs: Callable[[Any], Any] = lambda data: data
    optimizer: Any = None


@dataclass(frozen=True)
class Call:
    """One call of the step."""

    step: int
    data: Any
    names: list[str] | None = None  # of the parts of the data
    randomness: RandomState | None = None  # where the step draws outside of graphs


@dataclass
class Memory:
    """Keeps a State every EVERY calls and the calls since, within a budget of bytes.

    `too_large` is told once if the state alone is over the budget; then nothing is kept. `first_known`: ids of handles
    whose value before the first step is known without having been kept, such as the slots that an optimizer makes.
    """

    handles: Handles
    budget: int
    too_large: Callable[[int], None]
    first_known: Callable[[], set[int]] = set
    shadow: State | None = None
    calls: list[Call] = field(default_factory=list)
    off: bool = False
    _state_bytes: int = 0
    _data_bytes: int = 0
    _kept: set[int] = field(default_factory=set)  # ids of handles

    def before(self, call: Call) -> None:
        """Take note of a call that is about to happen."""
        if self.off:
            return
        size = _bytes(call.data)
        if (
            self.shadow is None
            or self._unexplained()
            or len(self.calls) >= EVERY
            or self._state_bytes + self._data_bytes + size > self.budget
        ):
            self.renew()
        if not self.off:
            self._data_bytes += size
            self.calls.append(call)

    def renew(self) -> None:
        """Keep the state as it is now; forget what was before."""
        self.calls, self._data_bytes, self._kept = [], 0, self.handles.ids()
        self.shadow = State.now(self.handles)
        self._state_bytes = sum(int(np.prod(v.shape)) * v.dtype.size for _, _, v in self.shadow.values)
        if self._state_bytes > self.budget:
            self.shadow, self.off = None, True
            self.too_large(self._state_bytes)

    def made(self) -> None:
        """Handles became known that the shadow has not, of variables that are as they were made. Keep that, too."""
        if self.shadow is None:
            return
        for new in self.handles.ids() - self._kept:
            kept = self.handles.read_one(new)
            if kept is not None:  # else its tf.function makes it when it was traced, and is then traced once more
                self.shadow.values.append(kept)
                self._kept.add(new)

    def _unexplained(self) -> bool:
        """Whether there are variables of which nobody knows the value at the shadow."""
        new = self.handles.ids() - self._kept
        if new and len(self.calls) == 1 and self.calls[0].step == 0 and new <= self.first_known():
            self._kept |= new
            new = set()
        return bool(new)

    def is_over(self, data: int) -> bool:
        """Whether so many bytes of batches are too much beside the state."""
        return self._state_bytes + data > self.budget

    def until(self, step: int) -> list[Call]:
        """The calls from the shadow up to `step`, empty if it is not among them."""
        calls = [call for call in self.calls if call.step <= step]
        return calls if self.shadow is not None and calls and calls[-1].step == step else []

    def forget(self) -> None:
        """Nothing can be replayed until the next call."""
        self.shadow, self.calls, self._data_bytes = None, [], 0


def _bytes(data: Any) -> int:
    sizes = (getattr(x, "nbytes", None) or _tensor_bytes(x) for x in tf.nest.flatten(data, expand_composites=True))
    return sum(sizes)


def _tensor_bytes(x: Any) -> int:
    shape: Any = getattr(x, "shape", None)
    count = shape.num_elements() if hasattr(shape, "num_elements") else 0
    return (count or 0) * getattr(getattr(x, "dtype", None), "size", 0)
