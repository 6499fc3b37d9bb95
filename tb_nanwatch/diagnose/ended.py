"""Whether a run ended because a step raised an error, and which."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tb_nanwatch.format.records import Note
from tb_nanwatch.store.run import Run

#: What TensorFlow's kernel says when it refuses a label; the numbers are taken over, the words are not.
REFUSED: Final = re.compile(r"label value of (-?\d+) which is outside the valid range of \[(\d+), (\d+)\)")
_LINE: Final = re.compile(r"\(([^()]+, line \d+)\)$")
_LABELS: Final = re.compile(r"Label values:((?: -?\d+)+)")


def error_of(run: Run) -> Note | None:
    """The error that ended the newest attempt; None where steps followed it, or none was raised."""
    newest = run.attempts[-1]
    notes = [n for part in run.parts if part.header.attempt == newest.attempt for n in part.notes if n.kind == "raised"]
    last = max(notes, key=lambda note: note.step, default=None)
    return last if last is not None and last.step > newest.last_step else None


def error_name(note: Note) -> str:
    """Class of the error, "InvalidArgumentError"."""
    return note.text.partition(":")[0]


def line_of(text: str) -> str:
    """The user's line that an error names, "train.py, line 8"; empty without one."""
    found = _LINE.search(text)
    return "" if found is None else found[1]


def refused_label(text: str) -> tuple[int, int, int] | None:
    """(label, first class, first number behind the last class) where an error refuses a label."""
    found = REFUSED.search(text)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def samples_with(text: str, low: int, end: int) -> Sequence[int]:
    """Places in the batch whose labels lie outside of low..end - 1, as far as the error lists them."""
    listed = _LABELS.search(text)
    labels = [] if listed is None else [int(label) for label in listed[1].split()]
    return [place for place, label in enumerate(labels) if not low <= label < end]
