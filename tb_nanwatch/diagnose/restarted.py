"""An incident that an earlier start of the run had, which somebody has since started again."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.format.records import Incident
from tb_nanwatch.store.run import Attempt, Run

FINITE_STEPS: Final = 10  # as many as make an incident "recovered"


def finite_since(run: Run, incident: Incident) -> int | None:
    """First step of the newest start, if that came after the incident, has been going for a while and had none."""
    later = _later(run, incident)
    if incident.recovered or not later or later[-1].last_step - later[-1].first_step + 1 < FINITE_STEPS:
        return None
    since = later[-1].header.wall_time
    return None if any(other.wall_time >= since for other in run.incidents) else later[-1].first_step


def cut_off(run: Run, incident: Incident) -> int | None:
    """The last step of an incident that lasted when its start of the run ended."""
    if incident.recovered or not _later(run, incident):
        return None
    return next((a.last_step for a in run.attempts if a.last_step == incident.last_step), None)


def _later(run: Run, incident: Incident) -> list[Attempt]:
    return [attempt for attempt in run.attempts[1:] if attempt.header.wall_time > incident.wall_time]
