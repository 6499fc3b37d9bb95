"""What came of trying a remedy, as a sentence beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tb_nanwatch.diagnose import words


def tried(trial: Mapping[str, Any]) -> str:
    """The outcome of a trial as the report holds it; "" where nobody tried the remedy."""
    note = words.printable(trial["note"])
    aside = f" ({note})" if note else ""
    if trial["outcome"] == "finite":
        steps = words.count(trial["steps"], "step")
        return f"Tried on the recorded data: finite over {steps} in which it was not finite without{aside}."
    if trial["outcome"] == "nonfinite":
        return f"Tried on the recorded data: it did not help{aside}."
    return f"Tried on the recorded data, without an answer{aside}." if trial["outcome"] == "inconclusive" else ""
