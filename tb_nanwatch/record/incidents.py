"""Incidents as they open, spread, recover and end.

One lasts until ten steps in a row are finite with finite weights; a shorter gap belongs to the same incident, unless
the recorder ends in it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Final

from tb_nanwatch.format.records import Incident, Origin
from tb_nanwatch.record import judge

RECOVERED_AFTER: Final = 10  # finite steps in a row
SKIPS_ARE_TROUBLE: Final = 50  # skipped steps in a row with nothing else between
KEPT_WHOLE: Final = 100  # incidents of a run that are recorded; further ones are counted
SPREAD_KEPT: Final = 512


@dataclass(frozen=True)
class Change:
    """An incident that must be written. `opened` if it is new, `urgent` if training must wait until it is on disk."""

    incident: Incident
    opened: bool = False
    urgent: bool = False


@dataclass
class Incidents:
    """Follows a run step by step. `first_id` continues the count of earlier recorders of the run."""

    action: str = "record"
    first_id: int = 0
    weights_bad: frozenset[str] = frozenset()  # names, before the first step
    benign: judge.Benign = field(default_factory=judge.Benign)
    current: Incident | None = None
    newest: Incident | None = None
    bad_steps: int = 0  # of all incidents
    last_finite_step: int | None = None
    uncounted: int = 0  # incidents behind the first hundred of the run
    _seen: int = 0
    _finite: int = 0
    _last_bad: int = -1
    _known: set[str] = field(default_factory=set)
    _skips: int = 0
    _metrics_bad: bool = False

    def follow(self, state: judge.StepState) -> list[Change]:
        """Take in the next step; what has to be written because of it."""
        state = self._without_old_metrics(state)
        state = replace(state, weights_bad_before=self.weights_bad)
        self.weights_bad = frozenset(b.info.name for b in state.bad if b.info.kind == "weight")
        benign = frozenset(self.benign.tags)
        self._skips = self._skips + 1 if state.skipped(benign) else 0
        damaged = state.damaged(benign) or self._skips >= SKIPS_ARE_TROUBLE
        if damaged:
            return self._damaged(state, benign)
        self.benign.learn(state)
        return self._finite_step(state)

    def improve(self, number: int, origin: Origin | None, replay_json: str, capsule: str = "") -> Incident:
        """Give the newest incident (id `number`) the origin that a replay found, its other findings and its capsule.

        Of weights that were bad before, a replay sees no more than where they strike first: then the origin stays.
        """
        assert self.newest is not None
        assert self.newest.id == number
        if origin is None or self.newest.origin.phase == "weights":
            origin = self.newest.origin
        better = replace(self.newest, origin=origin, replay_json=replay_json, capsule=capsule)
        if self.current is not None and self.current.id == number:
            self.current = better
        self.newest = better
        return better

    def close(self) -> list[Change]:
        """The incident that is open when the recorder ends: recovered if the run ended on a finite step."""
        if self.current is None:
            return []
        return self._written(Change(self._ended() if self._finite else self.current, urgent=True))

    def _without_old_metrics(self, state: judge.StepState) -> judge.StepState:
        """Metrics are running means: they stay NaN until the epoch ends. Only the step that made them so counts."""
        bad = "metric" in state.kinds()
        old, self._metrics_bad = self._metrics_bad, bad
        if bad and old:
            return replace(state, bad=tuple(b for b in state.bad if b.info.kind != "metric"))
        return state

    def _damaged(self, state: judge.StepState, benign: frozenset[str]) -> list[Change]:
        self._finite = 0
        self._last_bad = state.step
        self.bad_steps += 1
        if self.current is not None:
            grown = judge.spread(state, self._known, len(self.current.spread))
            self._known |= {b.info.tag for b in state.bad}
            self.current = self.newest = replace(
                self.current,
                spread=(self.current.spread + tuple(grown))[:SPREAD_KEPT],
                bad_steps=self.current.bad_steps + 1,
            )
            return self._written(Change(self.current)) if grown else []
        self._seen += 1
        relevant = replace(state, bad=tuple(b for b in state.bad if b.info.tag not in benign) or state.bad)
        self._known = {b.info.tag for b in state.bad}
        self.current = self.newest = Incident(
            id=self.first_id + self._seen - 1,
            first_step=state.step,
            detected_step=state.step,
            origin=judge.origin(state, benign),
            spread=tuple(judge.spread(relevant, set(), 0))[:SPREAD_KEPT],
            last_finite_step=self.last_finite_step,
            wall_time=time.time(),
            action=self.action,
        )
        if not self._kept():
            self.uncounted += 1
        return self._written(Change(self.current, opened=True, urgent=True))

    def _finite_step(self, state: judge.StepState) -> list[Change]:
        self.last_finite_step = state.step
        self._finite += 1
        if self.current is None or self._finite < RECOVERED_AFTER:
            return []
        self.newest = self._ended()
        self.current = None
        self._known = set()
        return self._written(Change(self.newest, urgent=True))

    def _ended(self) -> Incident:
        assert self.current is not None
        return replace(self.current, last_step=self._last_bad, recovered=True)

    def _kept(self) -> bool:
        return self.first_id + self._seen <= KEPT_WHOLE

    def _written(self, change: Change) -> list[Change]:
        return [change] if self._kept() else []
