"""What a replay of a graph needs: the variables before one of the newest steps, and what was fed since.

A session shows nothing of the random state inside its kernels, so a step that draws numbers cannot be repeated exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import tensorflow as tf

EVERY: Final = 64  # steps between two readings of the variables


@dataclass(frozen=True)
class Fed:
    """One step: what was fetched, and the feeds by the names of their tensors (references, not copies)."""

    step: int
    fetches: Any
    feeds: Mapping[str, Any]

    def ends(self, graph: Any) -> list[Any]:
        """The tensors and ops that were fetched."""
        return [graph.as_graph_element(f) for f in tf.nest.flatten(self.fetches)]

    @property
    def size(self) -> int:
        """Bytes of the arrays."""
        return sum(getattr(value, "nbytes", 0) for value in self.feeds.values())


@dataclass
class Memory:
    """Keeps the newest steps and the variables before the first of them, within a budget of bytes.

    too_large is told once how many bytes the variables take if that is more than the budget; then nothing is kept.
    """

    budget: int
    too_large: Callable[[int], None]
    off: bool = False
    variables: Mapping[str, Any] | None = None
    steps: list[Fed] = field(default_factory=list)
    _bytes: int = 0

    def before(self, fed: Fed, read: Callable[[], Mapping[str, Any] | None]) -> None:
        """Take note of a step that is about to happen. `read` gives all variables by name, None if one has no value."""
        if self.off:
            return
        if self.variables is None or len(self.steps) >= EVERY or self._bytes + fed.size > self.budget:
            self._renew(read())
        if self.variables is not None:
            self.steps.append(fed)
            self._bytes += fed.size

    def until(self, step: int) -> list[Fed]:
        """The steps from the kept variables up to `step`, empty if it is not among them."""
        steps = [fed for fed in self.steps if fed.step <= step]
        return steps if steps and steps[-1].step == step else []

    def _renew(self, variables: Mapping[str, Any] | None) -> None:
        self.steps, self.variables = [], variables
        self._bytes = sum(value.nbytes for value in (variables or {}).values())
        if self._bytes > self.budget:
            self.variables, self.off = None, True
            self.too_large(self._bytes)
