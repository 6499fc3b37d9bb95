from __future__ import annotations

import pytest

from tb_nanwatch.diagnose import trials
from tb_nanwatch.diagnose.outcome import tried


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (
            "finite",
            "Tried on the recorded data: finite over 64 steps in which it was not finite without (epsilon 1e-7).",
        ),
        ("nonfinite", "Tried on the recorded data: it did not help (epsilon 1e-7)."),
        ("inconclusive", "Tried on the recorded data, without an answer (epsilon 1e-7)."),
        ("not_run", ""),
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
