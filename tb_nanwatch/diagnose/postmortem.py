"""Everything that can be said of a run, in one value that the tab and every renderer share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tb_nanwatch.diagnose import remedies, trials
from tb_nanwatch.diagnose.before import Before, before
from tb_nanwatch.diagnose.causes import Case, causes_of
from tb_nanwatch.diagnose.growth import trends
from tb_nanwatch.diagnose.report import run_entry
from tb_nanwatch.diagnose.rules import findings_of
from tb_nanwatch.diagnose.verdict import Verdict, verdict
from tb_nanwatch.store.run import Run

CLOSELY: Final = 3  # incidents whose steps before are looked at; what follows them is mostly their echo


@dataclass(frozen=True)
class PostMortem:
    """A run, its entry of the report (strict JSON values), its words and the steps around its first incident."""

    run: Run
    entry: dict[str, Any]
    verdict: Verdict
    before: Before | None
    advice: tuple[tuple[dict[str, Any], ...], ...]  # remedies of each finding, as those of an incident in the report

    @property
    def status(self) -> str:
        """One of "healthy", "warning", "incident", "mended"; "empty" for a run without a recorded step."""
        return str(self.entry["status"])


def examine(run: Run) -> PostMortem:
    """Diagnose a snapshot of a run. Pure: the same snapshot gives the same answer."""
    cases = [
        Case(run, incident, trends(run, incident.first_step) if number < CLOSELY else None)
        for number, incident in enumerate(run.incidents)
    ]
    causes = [causes_of(case) for case in cases]
    findings = findings_of(run)
    entry = run_entry(run, cases, causes, findings)
    advice = tuple(
        tuple(
            remedies.entry(name, remedies.of_finding(run, f.rule, f.tensor, f.last_step), trials.best(name, ()))
            for name in f.remedies
        )
        for f in findings
    )
    return PostMortem(
        run=run,
        entry=entry,
        verdict=verdict(run, cases, causes, findings, [i["remedies"] for i in entry["incidents"]], advice),
        before=before(run, run.incidents[0]) if run.incidents else None,
        advice=advice,
    )
