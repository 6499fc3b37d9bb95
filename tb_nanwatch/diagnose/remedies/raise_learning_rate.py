"""A learning rate at which something moves."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.remedies.remedy import Advice, Patient, number, rate_set

USUAL: Final = 1e-3  # of Adam, and a careful one of SGD


def raise_learning_rate(patient: Patient) -> Advice:
    """A usual value, at most a thousand times the one that the run had."""
    rate = patient.learning_rate
    was = f" The run had {words.magnitude(rate)}." if rate else ""
    why = f"At this rate training would take for ever: raise it until the loss falls.{was}"
    value = number(min(USUAL, 1000 * rate) if rate else USUAL)
    return Advice(why, rate_set(patient, value))
