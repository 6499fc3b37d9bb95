"""A smaller learning rate."""

from __future__ import annotations

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.remedies.remedy import FIT, GRAPH, Advice, Patient, number, rate_set


def lower_learning_rate(patient: Patient) -> Advice:
    """The value that the run had, times the factor that held when it was tried; a tenth where none was."""
    rate = patient.learning_rate
    divisor = round(1 / (patient.value or 0.1))
    was = f" The run had {words.magnitude(rate)}." if rate else ""
    grew = "The numbers grew from update to update: smaller" if patient.step else "Smaller"
    why = f"{grew} steps keep the weights where the loss falls.{was}"
    current = (
        "learning_rate"
        if patient.style == GRAPH
        else f"{'model.' if patient.style == FIT else ''}optimizer.learning_rate"
    )
    return Advice(why, rate_set(patient, number(rate / divisor) if rate else f"{current} / {divisor}"))
