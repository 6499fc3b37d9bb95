"""An incident that an earlier start of the run had, which somebody has since started again."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.format.records import Incident
from tb_nanwatch.store.run import Attempt, Run

FINITE_STEPS: Final = 10  # as many as make an incident "recovered"


def mended(run: Run) -> int | None:
    """First step of the newest start, if all incidents came before it and it has been going for a while."""
    if not run.incidents or len(run.attempts) < 2:
        return None
    newest = run.attempts[-1]
    if newest.last_step - newest.first_step + 1 < FINITE_STEPS:
        return None
    over = all(incident.wall_time < newest.header.wall_time for incident in run.incidents)
    return newest.first_step if over else None


def finite_since(run: Run, incident: Incident) -> int | None:
    """The same for an incident that lasted as long as its start of the run did."""
    return None if incident.recovered else mended(run)


def cut_off(run: Run, incident: Incident) -> int | None:
    """The last step of an incident that lasted when its start of the run ended."""
    if incident.recovered or not _later(run, incident):
        return None
    return next((a.last_step for a in run.attempts if a.last_step == incident.last_step), None)


def _later(run: Run, incident: Incident) -> list[Attempt]:
    return [attempt for attempt in run.attempts[1:] if attempt.header.wall_time > incident.wall_time]
