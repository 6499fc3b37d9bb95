"""What a rule for causes is given, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from tb_nanwatch.diagnose.batch import Batch, batches
from tb_nanwatch.diagnose.growth import Trend
from tb_nanwatch.diagnose.operation import Operation, operation, replay_of
from tb_nanwatch.format.records import Incident
from tb_nanwatch.store.run import Run

BROUGHT: Final = ("input", "weights")  # phases in which nothing that the training did made the first bad value
HARMLESS: Final = 1.0  # norm of weights that lead nowhere however they grew: a bias begins at 0


@dataclass(frozen=True)
class Case:
    """An incident with what grew in the steps before it; None where they were not looked at."""

    run: Run
    incident: Incident
    trends: tuple[Trend, ...] | None

    @property
    def run_up(self) -> tuple[Trend, ...]:
        """The trends that may have to do with the incident."""
        if self.incident.origin.phase in BROUGHT:
            return ()
        return tuple(t for t in self.trends or () if t.kind != "weight" or t.last >= HARMLESS)

    @cached_property
    def replay(self) -> Mapping[str, Any]:
        """What the replay left beside the origin; empty without one."""
        return replay_of(self.incident)

    @cached_property
    def op(self) -> Operation:
        """The op that made the first bad value."""
        return operation(self.incident, self.replay)

    @cached_property
    def batch(self) -> tuple[Batch, ...]:
        """The tensors of the bad step's batch, beside the batches before."""
        return batches(self.run, self.incident)


@dataclass(frozen=True)
class Cause:
    """A named cause, how sure the rule is (0 to 1), what it saw, and which remedies follow."""

    name: str
    confidence: float
    evidence: tuple[str, ...]
    remedies: tuple[str, ...] = field(default=())
