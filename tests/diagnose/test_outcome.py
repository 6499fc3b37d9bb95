from __future__ import annotations

import pytest

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
