"""A run as the JSON report holds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from tb_nanwatch.diagnose import remedies, restarted, slot, trials
from tb_nanwatch.diagnose.causes import Case, Cause
from tb_nanwatch.diagnose.rules import Finding
from tb_nanwatch.diagnose.strict import strict
from tb_nanwatch.format.records import Counts, OperandStats, Origin
from tb_nanwatch.store.run import Run

REPORT_VERSION: Final = 1
MOST_REMEDIES: Final = 5  # of an incident; a longer list is no advice


def document(logdir: str, runs: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The whole report over the entries of its runs."""
    return {"format_version": REPORT_VERSION, "logdir": logdir, "runs": list(runs)}


def run_entry(
    run: Run, cases: Sequence[Case], causes: Sequence[Sequence[Cause]], findings: Sequence[Finding]
) -> dict[str, Any]:
    """One run. `causes[i]` are those of `cases[i]`, the likeliest first. Holds nothing that JSON cannot."""
    entry: dict[str, Any] = {
        "run": run.name,
        "status": _status(run, findings),
        "steps": run.steps,
        "last_finite_step": run.last_finite_step,
        "incidents": [_incident(case, found) for case, found in zip(cases, causes, strict=True)],
        "findings": [asdict(finding) for finding in findings],
        "damage": list(run.damage),
    }
    return dict(strict(entry))


def _status(run: Run, findings: Sequence[Finding]) -> str:
    if run.incidents:
        return "incident" if restarted.mended(run) is None else "mended"
    if findings:
        return "warning"
    return "healthy" if run.steps else "empty"


def _incident(case: Case, causes: Sequence[Cause]) -> dict[str, Any]:
    incident = case.incident
    offered: dict[str, str] = {}  # remedy to the likeliest cause that it is for
    for cause in causes:
        for name in cause.remedies:
            offered.setdefault(name, cause.name)
    tried = trials.of(case.replay)
    for name in trials.proven(tried):  # also what no cause would have suggested
        if name in remedies.REMEDIES:
            offered.setdefault(name, causes[0].name)
    names = list(offered)[:MOST_REMEDIES]
    entries = [
        remedies.entry(name, remedies.of_case(case, offered[name]), trials.best(name, tried))
        for name in trials.ranked(names, tried)
    ]
    return {
        "first_step": incident.first_step,
        "last_step": incident.last_step,
        "recovered": incident.recovered,
        "detected_step": incident.detected_step,
        "origin": origin_entry(incident.origin),
        "replay": _replay(case.replay),
        "spread": [{"order": s.order, "phase": s.phase, "tensor": s.tensor, "kind": s.kind} for s in incident.spread],
        "cause": _cause(causes[0]),
        "other_causes": [_cause(cause) for cause in causes[1:]],
        "remedies": _distinct(entries, names),
        "capsule": incident.capsule or None,
    }


def _distinct(entries: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Remedies without those that are the same lines as another: under the name that comes first in `names`, where
    what fits the cause best does, and with the trial that said more, since it speaks for both.
    """
    kept: dict[str, dict[str, Any]] = {}
    for entry in entries:
        same = kept.get(entry["snippet"])
        if same is None:
            kept[entry["snippet"]] = entry
        elif names.index(entry["name"]) < names.index(same["name"]):
            kept[entry["snippet"]] = entry | {"trial": same["trial"]}
    return list(kept.values())


def _replay(replay: Mapping[str, Any]) -> dict[str, Any] | None:
    """How the replay went, and what it knows beside the origin; None where there was none."""
    if not replay:
        return None
    return {
        "outcome": replay.get("replay"),
        "why": replay.get("why"),
        "error": replay.get("error"),
        "forward_op": replay.get("forward_op"),
        "library": replay.get("library"),
        "stack": replay.get("stack", []),
        "fed_by": replay.get("fed_by"),
        "features": replay.get("features", []),
        "slot": slot.told(replay),
        "graph": replay.get("graph", []),
        "steps": replay.get("replayed_steps"),
        "seconds": replay.get("seconds"),
    }


def _cause(cause: Cause) -> dict[str, Any]:
    return {"name": cause.name, "confidence": cause.confidence, "evidence": list(cause.evidence)}


def origin_entry(origin: Origin) -> dict[str, Any]:
    """An origin; what is not known is null or an empty list."""
    return {
        "phase": origin.phase,
        "layer": origin.layer or None,
        "tensor": origin.tensor or None,
        "kind": origin.tensor_kind or None,
        "op_type": origin.op_type or None,
        "op_name": origin.op_name or None,
        "source": asdict(origin.source) if origin.source is not None else None,
        "replica": origin.replica if origin.replica >= 0 else None,
        "samples": list(origin.samples),
        "precision": origin.precision,
        "inputs": [_operand(operand) for operand in origin.inputs],
        "output": _counts(origin.output),
    }


def _operand(operand: OperandStats) -> dict[str, Any]:
    names = ("name", "dtype", "shape", "min", "max", "nan", "inf", "zero", "negative")
    return {name: getattr(operand, name) for name in names}


def _counts(counts: Counts) -> dict[str, int]:
    return {"nan": counts.nan, "pos_inf": counts.pos_inf, "neg_inf": counts.neg_inf, "size": counts.size}
