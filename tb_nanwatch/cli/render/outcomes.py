"""What came of `nanwatch try`: a table and a sentence, or JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tb_nanwatch.cli.render import page
from tb_nanwatch.cli.trying import outcome as outcomes
from tb_nanwatch.cli.trying.outcome import Outcome
from tb_nanwatch.diagnose.strict import dumps
from tb_nanwatch.diagnose.words import count, escaped, listing, magnitude

WORDS: Final = {
    outcomes.FINITE: "finite",
    outcomes.NONFINITE: "not finite",
    outcomes.INCONCLUSIVE: "inconclusive",
    outcomes.NOT_APPLICABLE: "not applicable",
    outcomes.DID_NOT_START: "did not start",
    outcomes.UNWATCHED: "no recorder",
    outcomes.NOT_RUN: "not run",
    outcomes.STOPPED: "interrupted",
}
STYLES: Final = {outcomes.FINITE: "bold green", outcomes.NONFINITE: "bold red"}


@dataclass(frozen=True)
class Tried:
    """All that came of it. outcomes: the control first."""

    program: Sequence[str]
    steps: int
    incident: str  # the run whose newest incident chose the remedies, "" where none did
    outcomes: Sequence[Outcome]

    @property
    def control(self) -> Outcome:
        """The program unchanged."""
        return self.outcomes[0]

    @property
    def held(self) -> list[Outcome]:
        """Remedies with which the steps were finite, where they were not without; first those whose loss fell."""
        held = [o for o in self.outcomes[1:] if o.outcome == outcomes.FINITE]
        return sorted(held, key=lambda o: o.loss_fell is not True)


def render_json(tried: Tried, out: TextIO) -> None:
    """Strict JSON: the program, steps, the incident's run, the control and the outcomes."""
    document = {
        "format_version": 1,
        "program": list(tried.program),
        "steps": tried.steps,
        "incident_of": tried.incident or None,
        "control": tried.control.as_dict(),
        "outcomes": [o.as_dict() for o in tried.outcomes[1:]],
    }
    out.write(f"{dumps(document, indent=2)}\n")


def render(tried: Tried, out: TextIO) -> None:
    """The table, what must be said beside it, and the verdict."""
    page.write(out, lambda console: _page(console, tried))


def _page(console: Console, tried: Tried) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    base = _base(tried)
    first = f"run, below {_short(base)}" if base else "run"
    for name in (first, "outcome", "steps", "loss", "output"):
        table.add_column(Text(name), justify="right" if name == "steps" else "left", overflow="fold")
    for one in tried.outcomes:
        cells = (
            one.label,
            _told(one),
            f"{one.steps:,}" if one.steps else "",
            _loss(one),
            _short(one.output, one.run if base else ""),
        )
        styles = ("", STYLES.get(one.outcome, "yellow"), "", "", "dim")
        table.add_row(*(Text(escaped(cell), style=style) for cell, style in zip(cells, styles, strict=True)))
    console.print(table)
    for one in tried.outcomes:
        if one.note:
            first, *rest = one.note.split("\n")
            console.print(Text.assemble((f"{one.label}: ", "bold"), first))
            for line in rest:
                console.print(Text(f"    {line}", style="dim"))
    console.print(Text(verdict(tried)))


def _told(one: Outcome) -> str:
    if one.outcome == outcomes.NONFINITE:
        return f"not finite at step {one.first_bad_step:,}"
    return WORDS[one.outcome]


def _loss(one: Outcome) -> str:
    if not one.losses:
        return ""
    first, last = magnitude(one.losses[0]), magnitude(one.losses[-1])
    if len(one.losses) == 1:
        return first
    return f"{first} to {last}{', did not fall' if one.outcome == outcomes.FINITE and one.loss_fell is False else ''}"


def _base(tried: Tried) -> str:
    """The folder that holds the folders of all runs, "" where they are in several."""
    parents = {str(Path(one.run).parent) for one in tried.outcomes if one.run}
    return parents.pop() if len(parents) == 1 else ""


def _short(path: str, base: str = "") -> str:
    """A path as seen from `base`, else from the current folder, if it is below one of them."""
    for start in (base, os.curdir):
        if path and start:
            relative = os.path.relpath(path, start)
            if not relative.startswith(os.pardir):
                return relative
    return path


def verdict(tried: Tried) -> str:
    """The sentence below the table."""
    control = tried.control
    if control.outcome == outcomes.FINITE:
        return (
            f"Inconclusive: without a remedy {count(control.steps, 'step')} were finite, too. Let it run for longer: "
            f"--steps {4 * tried.steps}."
        )
    if control.outcome != outcomes.NONFINITE:
        return f"Inconclusive: without a remedy, {WORDS[control.outcome]}."
    unchanged = f"without a remedy step {control.first_bad_step:,} was not finite"
    if not tried.held:
        return f"No remedy held; {unchanged}."
    names = listing([one.label for one in tried.held], 8)
    return f"Held: {names}; {unchanged}."
