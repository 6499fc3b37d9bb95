"""What can be done, each with why it helps here and the lines to write. One remedy a file: a function from a
Patient to Advice, under its name in the report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.remedies.clean_input import clean_input
from tb_nanwatch.diagnose.remedies.clip_gradients import clip_gradients
from tb_nanwatch.diagnose.remedies.clip_predictions_or_from_logits import clip_predictions_or_from_logits
from tb_nanwatch.diagnose.remedies.guard_division import guard_division
from tb_nanwatch.diagnose.remedies.initializer import initializer
from tb_nanwatch.diagnose.remedies.lower_learning_rate import lower_learning_rate
from tb_nanwatch.diagnose.remedies.mixed_precision_policy import mixed_precision_policy
from tb_nanwatch.diagnose.remedies.raise_learning_rate import raise_learning_rate
from tb_nanwatch.diagnose.remedies.remedy import Advice, Patient, of_case, of_finding
from tb_nanwatch.diagnose.remedies.safe_where import safe_where
from tb_nanwatch.diagnose.remedies.use_activation_or_normalization import use_activation_or_normalization

REMEDIES: Final[Mapping[str, Callable[[Patient], Advice]]] = {
    rule.__name__: rule
    for rule in (
        clean_input,
        clip_gradients,
        clip_predictions_or_from_logits,
        guard_division,
        initializer,
        lower_learning_rate,
        mixed_precision_policy,
        raise_learning_rate,
        safe_where,
        use_activation_or_normalization,
    )
}

__all__ = ["REMEDIES", "Advice", "Patient", "entry", "of_case", "of_finding"]


def entry(name: str, patient: Patient, trial: Mapping[str, Any]) -> dict[str, Any]:
    """A remedy as the report holds it."""
    advice = REMEDIES[name](replace(patient, trial=trial))
    snippet = "\n".join(words.escaped(line) for line in advice.snippet.split("\n"))  # it quotes names and lines of code
    return {"name": name, "why": advice.why, "snippet": snippet, "trial": dict(trial)}
