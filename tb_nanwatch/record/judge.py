"""Where in a step the damage began, from which of its tensors were not finite.

A step runs in an order: input, activations first layer to last, loss, gradients last layer to first, weights.
The first bad tensor in that order is where the damage was first seen; its phase is the phase of the incident. Tensors
that were not finite before, while all that matters was finite, are left out: a -inf mask, a NaN label that is
weighted away.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tb_nanwatch.format.records import Counts, Origin, Spread, TensorInfo

_PHASE_OF = {
    "input": "input",
    "activation": "forward",
    "loss": "loss",
    "gradient": "backward",
    "applied": "update",
    "update": "update",
    "weight": "weights",
    "metric": "metric",
}
_ORDER = {kind: number for number, kind in enumerate(_PHASE_OF)}

NOTHING_COUNTED: Final = Counts()


@dataclass(frozen=True)
class Bad:
    """A tensor that is not finite at a step. Counts are zero where nobody counted; replica -1: not one of several."""

    info: TensorInfo
    counts: Counts = NOTHING_COUNTED
    replica: int = -1


@dataclass(frozen=True)
class StepState:
    """What matters of one step.

    finite_gradients: names of the variables whose gradient was read and found finite.
    scaled: a loss-scale optimizer guards the update, so that non-finite gradients alone cost a skipped step only.
    """

    step: int
    bad: tuple[Bad, ...] = ()
    scaled: bool = False
    finite_gradients: frozenset[str] = frozenset()
    weights_bad_before: frozenset[str] = frozenset()  # names

    def kinds(self) -> set[str]:
        return {b.info.kind for b in self.bad}

    @property
    def weights_finite(self) -> bool:
        return "weight" not in self.kinds()

    def damaged(self, benign: frozenset[str] = frozenset()) -> bool:
        """Whether damage reached a loss, a gradient, a weight or a metric. Behind a loss scale also an activation."""
        kinds = {b.info.kind for b in self.bad if b.info.tag not in benign}
        if kinds & {"loss", "weight", "metric"}:
            return True
        if self.scaled:
            return "activation" in kinds and "gradient" in kinds
        return bool(kinds & {"gradient", "applied"})

    def skipped(self, benign: frozenset[str] = frozenset()) -> bool:
        """Whether dynamic loss scaling skipped the step, as it is meant to."""
        return self.scaled and "gradient" in self.kinds() and not self.damaged(benign)


@dataclass
class Benign:
    """Tags that may hold non-finite values: they did while all that matters was finite, or from the beginning."""

    tags: set[str] = field(default_factory=set)

    def learn(self, state: StepState) -> None:
        if not state.damaged():
            self.tags |= {b.info.tag for b in state.bad if b.info.kind in ("input", "activation")}


def in_order(bad: Iterable[Bad]) -> list[Bad]:
    """Bad tensors in the order in which a step reaches them."""

    def key(b: Bad) -> tuple[int, int]:
        return _ORDER.get(b.info.kind, 9), -b.info.order if b.info.kind in ("gradient", "applied") else b.info.order

    return sorted(bad, key=key)


def origin(state: StepState, benign: frozenset[str]) -> Origin:
    """The origin at the precision of a layer. `state` must be damaged."""
    ordered = [b for b in in_order(state.bad) if b.info.tag not in benign] or in_order(state.bad)
    old = [b for b in ordered if b.info.kind == "weight" and b.info.name in state.weights_bad_before]
    first = old[0] if old else ordered[0]  # nothing of this step made what was bad before
    phase = _PHASE_OF.get(first.info.kind, "loss")
    precision = "layer"
    if phase == "weights" and not old:
        # The optimizer made it if it was given a finite gradient; a gradient that nobody read likely was not.
        phase = "update" if first.info.name in state.finite_gradients else "backward"
        precision = "layer" if phase == "update" else "step"
    return Origin(
        phase=phase,
        layer="" if phase in ("input", "loss", "metric") else first.info.layer,
        layer_class=first.info.layer_class,
        tensor=first.info.name,
        tensor_kind=first.info.kind,
        replica=first.replica,
        precision=precision,
        output=first.counts,
    )


def spread(state: StepState, known: set[str], first_order: int) -> list[Spread]:
    """Tensors that are bad at this step and were not before, in order."""
    new = [b for b in in_order(state.bad) if b.info.tag not in known]
    return [
        Spread(
            order=first_order + number,
            step=state.step,
            phase=_PHASE_OF.get(b.info.kind, "loss"),
            tensor=b.info.name,
            kind=b.info.kind,
            counts=b.counts,
            layer=b.info.layer,
        )
        for number, b in enumerate(new)
    ]
