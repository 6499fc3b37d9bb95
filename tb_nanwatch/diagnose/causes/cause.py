"""What a rule for causes is given, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from tb_nanwatch.diagnose.growth import Trend
from tb_nanwatch.format.records import Incident
from tb_nanwatch.store.run import Run


@dataclass(frozen=True)
class Case:
    """An incident with what grew in the steps before it; None where they were not looked at."""

    run: Run
    incident: Incident
    trends: tuple[Trend, ...] | None


@dataclass(frozen=True)
class Cause:
    """A named cause, how sure the rule is (0 to 1), what it saw, and which remedies follow."""

    name: str
    confidence: float
    evidence: tuple[str, ...]
    remedies: tuple[str, ...] = field(default=())
