"""What to try: the remedies asked for, else those of the newest incident of a logdir, else the common ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tb_nanwatch.diagnose import examine
from tb_nanwatch.diagnose.remedies import REMEDIES
from tb_nanwatch.errors import UsageError
from tb_nanwatch.format import treatment
from tb_nanwatch.format.records import Incident
from tb_nanwatch.format.treatment import CONTROL, DOSES, GUARDS, Place, Treatment
from tb_nanwatch.store.catalog import Catalog

STEPS: Final = 200  # where nobody knows when it fails
BEYOND: Final = 64  # steps behind the one that failed in an earlier run
COMMON: Final = ("lower_learning_rate", "clip_gradients", "initializer", "clean_input")


@dataclass(frozen=True)
class Known:
    """The newest incident of a logdir: where it is, its remedies, likeliest first, and the operation to blame."""

    run: str
    first_step: int
    remedies: tuple[str, ...]
    place: Place | None


@dataclass(frozen=True)
class Plan:
    """The control, then the remedies. left_out: (remedy, why it cannot be tried)."""

    treatments: tuple[Treatment, ...]
    left_out: tuple[tuple[str, str], ...]
    known: Known | None


def plan(asked: Sequence[str], steps: int | None, known: Known | None) -> Plan:
    """Raises UsageError for a remedy or a value that there is none of."""
    horizon = steps or max(STEPS, 0 if known is None else known.first_step + BEYOND)
    names = list(asked) or list(COMMON if known is None else known.remedies)
    treatments, left_out = [Treatment(CONTROL, "", horizon)], []
    for name in names:
        remedy, given, value = name.partition("=")
        why = _impossible(remedy, known)
        if why:
            left_out.append((remedy, why))
            continue
        values = (value,) if given else DOSES.get(remedy, ("",))
        for one in values:
            treatment.check(remedy, one)
            place = known.place if known is not None and remedy in GUARDS else None
            made = Treatment(remedy, one, horizon, place=place)
            treatments += [] if made in treatments else [made]
    return Plan(tuple(treatments), tuple(left_out), known)


def _impossible(remedy: str, known: Known | None) -> str:
    if remedy in REMEDIES and remedy not in DOSES:
        return "it needs an edit of the program"
    if remedy not in GUARDS:
        return ""
    if known is None:
        return "it is for one operation of the program: name the logdir of a run that failed with --logdir"
    if known.place is None:
        return f"the replay of run {known.run} named no operation"
    return ""


def newest_incident(logdir: Path) -> Known | None:
    """Of all runs below a logdir but those of earlier trials; None where there is no incident."""
    catalog = Catalog(logdir)
    catalog.refresh()
    found = [
        (incident.wall_time, run, number)
        for run in catalog.runs().values()
        if "try" not in Path(run.name).parts
        for number, incident in enumerate(run.incidents)
    ]
    if not found:
        return None
    _, run, number = max(found, key=lambda each: (each[0], each[1].name, each[2]))
    incident = run.incidents[number]
    entry = examine(run).entry["incidents"][number]
    names = tuple(remedy["name"] for remedy in entry["remedies"] if remedy["name"] in REMEDIES)
    return Known(run.name, incident.first_step, names or COMMON, _place(incident))


def _place(incident: Incident) -> Place | None:
    origin = incident.origin
    try:
        extra = json.loads(incident.replay_json or "{}")
    except (ValueError, RecursionError):
        extra = {}
    extra = extra if isinstance(extra, dict) else {}
    op_type = str(extra.get("forward_op") or origin.op_type)
    file, line = (origin.source.file, origin.source.line) if origin.source is not None else ("", 0)
    place = Place(op_type, file, line, origin.op_name, extra.get("through_where") is True)
    try:
        treatment.parse(Treatment(GUARDS[0], place=place).as_json())  # it came from a file: as the recorder will see it
    except UsageError:
        return None
    return place
