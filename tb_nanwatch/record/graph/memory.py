"""What a replay of a graph needs: the variables before one of the newest steps, and what was fed since.

A session shows nothing of the random state inside its kernels, so a step that draws numbers cannot be repeated exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

EVERY: Final = 8  # steps between two readings of the variables


@dataclass(frozen=True)
class Fed:
    """One step: what was fetched, and the feeds by the names of their tensors (references, not copies)."""

    step: int
    fetches: Any
    feeds: Mapping[str, Any]


@dataclass
class Memory:
    """Keeps the newest steps and the variables before the first of them, within a budget of bytes.

    read: values of all variables by name, None if they cannot be read now; too_large is told once how many bytes
    they take.
    """

    read: Callable[[], Mapping[str, Any] | None]
    budget: int
    too_large: Callable[[int], None]
    off: bool = False
    variables: Mapping[str, Any] | None = None
    steps: list[Fed] = field(default_factory=list)

    def before(self, fed: Fed) -> None:
        """Take note of a step that is about to happen."""
        if self.off:
            return
        if self.variables is None or len(self.steps) >= EVERY:
            self._renew()
        if self.variables is not None:
            self.steps.append(fed)

    def until(self, step: int) -> list[Fed]:
        """The steps from the kept variables up to `step`, empty if it is not among them."""
        steps = [fed for fed in self.steps if fed.step <= step]
        return steps if steps and steps[-1].step == step else []

    def _renew(self) -> None:
        self.steps, read = [], self.read()
        self.variables = None if read is None else {name: np.array(value) for name, value in read.items()}
        size = sum(value.nbytes for value in (self.variables or {}).values())
        if size > self.budget:
            self.variables, self.off = None, True
            self.too_large(size)
