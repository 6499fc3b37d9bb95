"""What a remedy can take hold of in a training loop. A remedy overrides what it needs.

Where a remedy cannot work it says so by raising NotApplicable: it must never run as if nothing had been asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from tb_nanwatch.record.naming import Names


class NotApplicable(Exception):
    """The remedy cannot be applied in this loop; the message says why, as the end of a sentence."""


@dataclass(frozen=True)
class Loop:
    """A training that is about to begin.

    models, optimizers: those that the entry point was given. iterations: updates done before, -1 where nobody counts.
    """

    names: Names
    models: Sequence[Any] = ()
    optimizers: Sequence[Any] = ()
    iterations: int = -1


@dataclass(frozen=True)
class GraphLoop:
    """A training by a TensorFlow 1 session.

    run(fetches, feed_dict) is the session's own, unwatched. layers: what is known of each by its path, the type of the
    op that it ends with. may_feed_again: whether a tensor that the user feeds may be fed another value.
    """

    graph: Any
    run: Callable[..., Any]
    training: Sequence[Any]  # its training ops
    weights: Sequence[Any] = ()  # NamedVariable
    layers: Mapping[str, str] = field(default_factory=dict)
    iterations: int = -1
    may_feed_again: bool = True


Feeds = Mapping[str, tuple[Any, Any]]  # tensor name to tensor and value


class Remedy:
    """Base of the remedies, and the control. words: what is done, for people."""

    words = "no remedy"

    def __init__(self) -> None:
        self.loop: Loop | None = None

    # ------------------------------------------------------------ eager and traced steps

    def begin(self, loop: Loop) -> None:
        """Before the first step."""
        self.loop = loop

    def arguments(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """What the step is called with, while it is traced or at every eager step."""
        return arguments

    def around(self) -> AbstractContextManager[Any]:
        """Context around the same."""
        return nullcontext()

    def gradients(self, sources: Any, gradients: Any, scaled: bool) -> Any:  # noqa: ARG002
        """What a tape gave for `sources`, as the step goes on with it. scaled: the loss carries a loss scale."""
        return gradients

    def applying(self, optimizer: Any) -> None:
        """A Keras optimizer is about to apply gradients."""

    def applied_rate(self, rate: float) -> float:
        """The learning rate of a step as it was applied, where the optimizer says `rate`."""
        return rate

    def after_first_step(self) -> None:
        """Time to say that there was nothing to take hold of."""

    # ------------------------------------------------------------ graphs of TensorFlow 1

    def begin_graph(self, loop: GraphLoop) -> None:
        """Before the first training step of a session."""

    def feeds(self, loop: GraphLoop, feeds: Feeds) -> dict[Any, Any]:  # noqa: ARG002
        """Values to feed in addition, by tensor; `feeds` are the user's."""
        return {}
