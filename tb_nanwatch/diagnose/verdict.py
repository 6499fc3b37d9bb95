"""The report in plain English: one headline and a few paragraphs, for somebody whose run just died."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tb_nanwatch.diagnose import account, repeated, words
from tb_nanwatch.diagnose.causes import Case, Cause
from tb_nanwatch.diagnose.ended import error_name, error_of
from tb_nanwatch.diagnose.finite import strays
from tb_nanwatch.diagnose.headline import headline
from tb_nanwatch.diagnose.rules import Finding
from tb_nanwatch.format.records import Incident
from tb_nanwatch.store.run import Run

INCIDENTS_TOLD: Final = 3  # in full; the rest are in the table
FORESEEN: Final = ("forecast",)  # rules whose first evidence is the news: when what will happen


@dataclass(frozen=True)
class Verdict:
    """Finished text: names are made printable, nothing needs computing by whoever shows it."""

    headline: str
    paragraphs: tuple[str, ...]


def verdict(
    run: Run,
    cases: Sequence[Case],
    causes: Sequence[Sequence[Cause]],
    findings: Sequence[Finding],
    remedies: Sequence[Sequence[Mapping[str, Any]]],
    advice: Sequence[Sequence[Mapping[str, Any]]],
) -> Verdict:
    """What happened in `run`. `causes[i]` and `remedies[i]` are of `cases[i]`, `advice[i]` of `findings[i]`."""
    if cases:
        news = _incident_headline(cases, causes)
        paragraphs: list[str] = []
        alike = repeated.grouped(cases, causes)
        for number, same in enumerate(alike[:INCIDENTS_TOLD]):
            first = same[0]
            paragraphs += account.tell(cases[first], causes[first], remedies[first], first=number == 0)
            paragraphs += repeated.tell([cases[n] for n in same])
        later = sum(map(len, alike[INCIDENTS_TOLD:]))
        if later:
            paragraphs.append(f"{words.count(later, 'later incident')} followed; the list has them.")
    elif (error := error_of(run)) is not None:
        news = f"Ended by an error at step {error.step:,}: {words.printable(error_name(error))}"
        paragraphs = _strays(run)
    elif not run.steps:
        news = f"Nothing readable: {words.printable(run.damage[0])}" if run.damage else "Nothing recorded yet"
        paragraphs = ["The recorder has announced this run but written no step."]
    elif findings:
        news = _finding_headline(run, findings)
        paragraphs = _strays(run)
    else:
        news = f"Healthy: {words.count(run.steps, 'step')}, {'no incident' if strays(run) else 'nothing non-finite'}"
        paragraphs = _strays(run) or [
            f"Every loss, gradient and weight recorded in {words.span(run.first_step, run.last_step)} was finite."
        ]
    for finding, offered in zip(findings, advice, strict=True):
        paragraphs += [_finding(finding, news), *([account.to_do(offered)] if offered else [])]
    return Verdict(news, (*paragraphs, *_reservations(run)))


def _incident_headline(cases: Sequence[Case], causes: Sequence[Sequence[Cause]]) -> str:
    first = headline(cases[0], causes[0])
    if len(cases) == 1:
        return first
    lasting = next((n for n, case in enumerate(cases) if not case.incident.recovered), 0)
    if lasting:
        earlier = words.count(_before(cases, cases[lasting].incident), "earlier incident")
        return f"{headline(cases[lasting], causes[lasting])}; {earlier} recovered"
    return f"{first}; {words.count(len(cases) - 1, 'more incident')} after it"


def _before(cases: Sequence[Case], incident: Incident) -> int:
    return sum(case.incident.recovered and case.incident.first_step < incident.first_step for case in cases)


def _finding_headline(run: Run, findings: Sequence[Finding]) -> str:
    """The news first, where there is some: a list of runs may show no more than the beginning."""
    foreseen = [finding for finding in findings if finding.rule in FORESEEN]
    rest = [finding for finding in findings if finding not in foreseen]
    places = list(dict.fromkeys(f"{_symptom(f)} ({words.printable(f.tensor)})" for f in rest))
    nothing = f"{'no incident' if strays(run) else 'no NaN or Inf'} in {words.count(run.steps, 'step')}"
    if foreseen:
        news = foreseen[0].evidence[0]
        said = f"{_capital(news)}; {nothing}{'' if run.ended else ' so far'}"
        return f"{said}, and {words.listing(places, 2)}" if places else said
    return f"{_capital(nothing)}, but {words.listing(places, 2)}"


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _symptom(finding: Finding) -> str:
    return words.printable(finding.rule.replace("_", " "))


def _finding(finding: Finding, headline: str) -> str:
    told = [text for text in finding.evidence if text[1:] not in headline] or finding.evidence
    where = words.span(finding.first_step, finding.last_step)
    at = f" at {words.printable(finding.tensor)}" if finding.tensor else ""
    return f"{_capital(_symptom(finding))}{at}, {where}: {'; '.join(told)}."


def _strays(run: Run) -> list[str]:
    """Non-finite values that did no damage, which a reader who sees them in the heatmap will ask about."""
    where = strays(run)
    if not where:
        return []
    said = f"Some values in {words.listing(where)} were not finite, and no loss or weight became so"
    return [f"{said}: a mask, or a step that dynamic loss scaling skipped, does that on purpose."]


def _reservations(run: Run) -> list[str]:
    """What limits the word of this report."""
    said = []
    dropped = sum(attempt.dropped for attempt in run.attempts)
    if dropped:
        steps = words.count(dropped, "recorded step")
        said.append(f"The disk did not keep up: {steps} could not be written and are missing here.")
    for note in run.notes:
        if note.kind == "disabled":
            said.append(f"Recording stopped before step {note.step:,}: {words.printable(note.text)}.")
        elif note.kind == "uncounted":
            said.append(f"{words.printable(note.text)[:1].upper()}{words.printable(note.text)[1:]}.")
    if run.damage:
        said.append(
            f"{words.count(len(run.damage), 'part')} of the files could not be read; what they held is missing here: "
            f"{words.printable(run.damage[0])}."
        )
    if len(run.attempts) > 1:
        said.append(f"The run was started {len(run.attempts):,} times; where attempts overlap, the newest is told.")
    return said
