"""A run as the JSON report holds it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final

from tb_nanwatch.diagnose import remedies
from tb_nanwatch.diagnose.causes import Cause
from tb_nanwatch.diagnose.rules import Finding
from tb_nanwatch.diagnose.strict import strict
from tb_nanwatch.format.records import Counts, Incident, OperandStats, Origin
from tb_nanwatch.store.run import Run

REPORT_VERSION: Final = 1


def document(logdir: str, runs: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The whole report over the entries of its runs."""
    return {"format_version": REPORT_VERSION, "logdir": logdir, "runs": list(runs)}


def run_entry(run: Run, causes: Sequence[Sequence[Cause]], findings: Sequence[Finding]) -> dict[str, Any]:
    """One run. `causes[i]` are those of `run.incidents[i]`, the likeliest first. Holds nothing that JSON cannot."""
    entry: dict[str, Any] = {
        "run": run.name,
        "status": _status(run, findings),
        "steps": run.steps,
        "last_finite_step": run.last_finite_step,
        "incidents": [_incident(incident, found) for incident, found in zip(run.incidents, causes, strict=True)],
        "findings": [asdict(finding) for finding in findings],
        "damage": list(run.damage),
    }
    return dict(strict(entry))


def _status(run: Run, findings: Sequence[Finding]) -> str:
    if run.incidents:
        return "incident"
    if findings:
        return "warning"
    return "healthy" if run.steps else "empty"


def _incident(incident: Incident, causes: Sequence[Cause]) -> dict[str, Any]:
    offered = dict.fromkeys(name for cause in causes for name in cause.remedies)
    return {
        "first_step": incident.first_step,
        "last_step": incident.last_step,
        "recovered": incident.recovered,
        "detected_step": incident.detected_step,
        "origin": _origin(incident.origin),
        "spread": [{"order": s.order, "phase": s.phase, "tensor": s.tensor} for s in incident.spread],
        "cause": _cause(causes[0]),
        "other_causes": [_cause(cause) for cause in causes[1:]],
        "remedies": [remedies.entry(name) for name in offered],
        "capsule": incident.capsule or None,
    }


def _cause(cause: Cause) -> dict[str, Any]:
    return {"name": cause.name, "confidence": cause.confidence, "evidence": list(cause.evidence)}


def _origin(origin: Origin) -> dict[str, Any]:
    return {
        "phase": origin.phase,
        "layer": origin.layer or None,
        "tensor": origin.tensor or None,
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
    names = ("name", "dtype", "shape", "min", "max", "nan", "inf", "zero")
    return {name: getattr(operand, name) for name in names}


def _counts(counts: Counts) -> dict[str, int]:
    return {"nan": counts.nan, "pos_inf": counts.pos_inf, "neg_inf": counts.neg_inf, "size": counts.size}
