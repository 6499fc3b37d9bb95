"""What came of trying a remedy, as a sentence beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tb_nanwatch.diagnose import trials, words

WITHOUT: Final = "without "  # how notes on what was left out begin


def tried(trial: Mapping[str, Any]) -> str:
    """The outcome of a trial as the report holds it; "" where nobody tried the remedy, nor knows why."""
    note = words.printable(str(trial.get("note", "")))
    aside = f" ({note})" if note else ""
    outcome = trial.get("outcome", "not_run")
    if outcome == "finite":
        steps = words.count(trial["steps"], "step")
        how, else_how = _compared(note)
        return f"Tried on the recorded data{how}: finite over {steps}; {else_how}: not finite{_loss(trial)}."
    if outcome == "nonfinite":
        return f"Tried on the recorded data: it did not help{aside}."
    if outcome == "inconclusive":
        return f"Tried on the recorded data, without an answer{aside}."
    return f"Not tried: {note}." if note else ""


def _compared(note: str) -> tuple[str, str]:
    """What was changed, by the recorder's note on it, and the contrary: " with global_clipnorm=1" and "without"."""
    if note.startswith(WITHOUT):
        return f" {note}", "with it" if note.startswith(f"{WITHOUT}the bad sample ") else "with them"
    return f" with {note}" if note else "", "without"


def _loss(trial: Mapping[str, Any]) -> str:
    """What the loss did meanwhile: staying finite alone is no training."""
    did = trials.course(trial)
    if not did:
        return ""
    first, last = (words.magnitude(float(end)) for end in trial["course"])
    if did == trials.FALLS:
        return f"; the loss fell from {first} to {last}"
    if did == trials.RISES:
        return f"; but the loss rose from {first} to {last}"
    return (
        f"; but the loss no longer moves ({last}){': too low' if str(trial.get('note')).startswith('learning') else ''}"
    )
