from __future__ import annotations

import pytest

from tb_nanwatch.diagnose import trials
from tb_nanwatch.diagnose.outcome import tried


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (
            "finite",
            "Tried on the recorded data with epsilon 1e-7: finite over 64 steps; without: not finite.",
        ),
        ("nonfinite", "Tried on the recorded data: it did not help (epsilon 1e-7)."),
        ("inconclusive", "Tried on the recorded data, without an answer (epsilon 1e-7)."),
        ("not_run", "Not tried: epsilon 1e-7."),
    ],
)
def test_outcomes(outcome: str, says: str) -> None:
    assert tried({"outcome": outcome, "steps": 64, "control": "nonfinite", "note": "epsilon 1e-7"}) == says


def test_the_remedy_for_the_cause_is_not_pushed_aside() -> None:
    """Two others held when tried; it could not be tried. Refuted, it goes to the end."""
    held = [
        {"remedy": name, "outcome": "finite", "steps": 5, "control": "nonfinite", "note": ""} for name in ("b", "c")
    ]
    assert trials.ranked(["a", "b", "c"], held) == ["b", "a", "c"]
    refuted = {"remedy": "a", "outcome": "nonfinite", "steps": 2, "control": "nonfinite", "note": ""}
    assert trials.ranked(["a", "b", "c"], [*held, refuted]) == ["b", "c", "a"]
    assert trials.ranked([], held) == []


@pytest.mark.parametrize(
    ("course", "says"),
    [
        ([2.3, 1.1], "; the loss fell from 2.3 to 1.1."),
        ([2.3, 4e9], "; but the loss rose from 2.3 to 4e9."),
        ([2.3, 2.3001], "; but the loss no longer moves (2.3): too low."),
        ([2.3, "NaN"], "."),
        ([2.3], "."),
        ("a", "."),
    ],
)
def test_what_the_loss_did(course: object, says: str) -> None:
    trial = {
        "outcome": "finite",
        "steps": 64,
        "control": "nonfinite",
        "note": "learning rate times 0.01",
        "course": course,
    }
    assert tried(trial) == (
        f"Tried on the recorded data with learning rate times 0.01: finite over 64 steps; without: not finite{says}"
    )


@pytest.mark.parametrize(
    ("left_out", "contrary"),
    [
        ("the bad sample of the failing batch", "with it"),
        ("the 2 bad samples of the failing batch", "with them"),
    ],
)
def test_what_was_left_out(left_out: str, contrary: str) -> None:
    trial = {"outcome": "finite", "steps": 1, "control": "nonfinite", "note": f"without {left_out}"}
    assert tried(trial) == f"Tried on the recorded data without {left_out}: finite over 1 step; {contrary}: not finite."
