"""A smaller learning rate."""

from __future__ import annotations

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.remedies.remedy import GRAPH, Advice, Patient, number


def lower_learning_rate(patient: Patient) -> Advice:
    """The value that the run had, times the factor that held when it was tried; a tenth where none was."""
    rate = patient.learning_rate
    divisor = round(1 / (patient.value or 0.1))
    was = f" The run had {words.magnitude(rate)}." if rate else ""
    grew = "The numbers grew from update to update: smaller" if patient.step else "Smaller"
    why = f"{grew} steps keep the weights where the loss falls.{was}"
    if patient.style == GRAPH:
        line = f"learning_rate = {number(rate / divisor)}" if rate else f"learning_rate = learning_rate / {divisor}"
        return Advice(why, f"{line}  # before the optimizer is made")
    name = "model.optimizer" if patient.style == "fit" else "optimizer"
    when = "  # after model.compile(...)" if patient.style == "fit" else ""
    value = number(rate / divisor) if rate else f"{name}.learning_rate / {divisor}"
    return Advice(why, f"{name}.learning_rate = {value}{when}")
