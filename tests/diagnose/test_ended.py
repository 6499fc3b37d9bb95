"""A run that an error ended says so; one that went on, or is another attempt's, does not."""

from __future__ import annotations

from pathlib import Path

import pytest
import runs

from tb_nanwatch.diagnose import examine
from tb_nanwatch.diagnose.ended import error_of, samples_with
from tb_nanwatch.diagnose.rules.ended_by_error import LONGEST, ended_by_error
from tb_nanwatch.diagnose.rules.label_invalid import label_invalid
from tb_nanwatch.format.records import Note
from tb_nanwatch.store.catalog import Catalog
from tb_nanwatch.store.run import Run

LABELS = (
    "InvalidArgumentError: Received a label value of 3 which is outside the valid range of [0, 3). "
    "Label values: 0 3 1 -1 (train.py, line 8)"
)
MEMORY = "ResourceExhaustedError: OOM when allocating tensor with shape[1024,1024] (train.py, line 8)"


def recorded(logdir: Path, *notes: Note, steps: int = 40, attempt: int = 0, first: int = 0) -> Run:
    runs.write(logdir, steps=range(first, first + steps), events=notes, attempt=attempt, first_step=first, pid=attempt)
    catalog = Catalog(logdir)
    catalog.refresh()
    return catalog.runs()["."]


def test_an_error(tmp_path: Path) -> None:
    run = recorded(tmp_path, Note(40, "raised", MEMORY))
    (finding,) = ended_by_error(run)
    assert (finding.rule, finding.first_step, finding.remedies) == ("ended_by_error", 40, ())
    assert finding.evidence == (
        "what ended it was ResourceExhaustedError: OOM when allocating tensor with shape[1024,1024] (train.py, line 8)",
        "everything recorded before it, up to step 39, was finite",
    )
    found = examine(run)
    assert found.status == "warning"
    assert found.verdict.headline == "Ended by an error at step 40: ResourceExhaustedError"
    assert found.verdict.paragraphs[0].startswith("Ended by error, step 40: what ended it was ResourceExhaustedError")


def test_a_refused_label(tmp_path: Path) -> None:
    run = recorded(tmp_path, Note(40, "raised", LABELS))
    assert list(ended_by_error(run)) == []
    (finding,) = label_invalid(run)
    assert (finding.rule, finding.tensor, finding.remedies) == ("label_invalid", "loss", ("clean_input",))
    given = "the loss was given the label 3, and the logits know the classes 0 to 2 only"
    assert finding.evidence == (
        f"an error (train.py, line 8) ended the run: {given}",
        "in its batch it was samples 1 and 3",
        "labels that count from 1 look like this, and so does a last layer with one unit too few",
    )
    ((advice,),) = examine(run).advice
    assert "(y >= 0) & (y < 1)" in advice["snippet"]  # the network of the test puts out one number


def test_errors_that_ended_nothing(tmp_path: Path) -> None:
    """Steps followed; another attempt followed, which has not come as far; a note of another kind."""
    survived = recorded(tmp_path / "survived", Note(20, "raised", MEMORY))
    recorded(tmp_path / "again", Note(40, "raised", MEMORY))
    again = recorded(tmp_path / "again", steps=5, attempt=1, first=20)
    other = recorded(tmp_path / "other", Note(40, "restart", MEMORY))
    assert [error_of(run) for run in (survived, again, other)] == [None, None, None]
    assert examine(survived).status == "healthy"


def test_an_error_of_the_first_step(tmp_path: Path) -> None:
    run = recorded(tmp_path, Note(0, "raised", "ValueError: no message"), steps=0)
    (finding,) = ended_by_error(run)
    assert finding.evidence == ("what ended it was ValueError: no message", "no step was recorded before it")
    assert examine(run).verdict.headline == "Ended by an error at step 0: ValueError"


def test_an_error_after_an_incident(tmp_path: Path) -> None:
    runs.write(tmp_path, events=[runs.incident("loss"), Note(40, "raised", MEMORY)])
    catalog = Catalog(tmp_path)
    catalog.refresh()
    (finding,) = ended_by_error(catalog.runs()["."])
    assert finding.evidence[1] == "values were not finite from step 30 on"


@pytest.mark.parametrize("text", ["", ":", "E: " + "x" * 5000, "\x1b[31mE: \n\x00", "label value of"])
def test_nonsense(text: str, tmp_path: Path) -> None:
    (finding,) = ended_by_error(recorded(tmp_path, Note(40, "raised", text)))
    assert finding.evidence[0].isprintable()
    assert len(finding.evidence[0]) < LONGEST + 200


def test_samples() -> None:
    assert list(samples_with("Label values: 0 -1 9 2", 0, 3)) == [1, 2]
    assert list(samples_with("nothing listed", 0, 3)) == []
