"""A tenth of the learning rate."""

from __future__ import annotations

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.remedies.remedy import GRAPH, Advice, Patient, number


def lower_learning_rate(patient: Patient) -> Advice:
    """The value that the run had, divided by ten."""
    rate = patient.learning_rate
    was = f" The run had {words.magnitude(rate)}." if rate else ""
    why = f"The numbers grew from update to update: smaller steps keep the weights where the loss falls.{was}"
    if patient.style == GRAPH:
        line = f"learning_rate = {number(rate / 10)}" if rate else "learning_rate = learning_rate / 10"
        return Advice(why, f"{line}  # before the optimizer is made")
    name = "model.optimizer" if patient.style == "fit" else "optimizer"
    when = "  # after model.compile(...)" if patient.style == "fit" else ""
    value = number(rate / 10) if rate else f"{name}.learning_rate / 10"
    return Advice(why, f"{name}.learning_rate = {value}{when}")
