"""A run that an error ended: it reads as finite to the end, and yet it died.

No threshold: the recorder notes what a step raises, or a callback or a validation beside it, and this is the last thing
that it noted. An error that training survived (steps followed it) is none of this run's ends; neither is an interrupt,
nor the end of the data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.ended import error_of, refused_label
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.store.run import Run

LONGEST: Final = 300  # characters of an error's words in a sentence


def ended_by_error(run: Run) -> Iterable[Finding]:
    """The error in its own words; refused labels have a rule of their own."""
    note = error_of(run)
    if note is None or refused_label(note.text):
        return
    name, _, said = note.text.partition(": ")
    said = words.escaped(said)
    said = said if len(said) <= LONGEST else f"{said[:LONGEST]}…"
    evidence = (f"what ended it was {words.printable(name)}: {said}", _before(run, note.step))
    yield Finding("ended_by_error", "warning", "", note.step, note.step, evidence, ())


def _before(run: Run, step: int) -> str:
    if run.incidents:
        return f"values were not finite from step {run.incidents[0].first_step:,} on"
    if run.last_step < 0:
        return "no step was recorded before it"
    return f"everything recorded before it, up to step {min(run.last_step, step - 1):,}, was finite"
