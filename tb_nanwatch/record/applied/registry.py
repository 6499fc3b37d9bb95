"""Remedies by their names in the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tb_nanwatch.format.treatment import Treatment
from tb_nanwatch.record.applied.clean_input import FiniteSamples, ScaledInputs
from tb_nanwatch.record.applied.clip_gradients import ClipGradients
from tb_nanwatch.record.applied.guard import Guard
from tb_nanwatch.record.applied.initializer import Initializer
from tb_nanwatch.record.applied.lower_learning_rate import LowerLearningRate
from tb_nanwatch.record.applied.mixed_precision_policy import Float32
from tb_nanwatch.record.applied.remedy import Remedy


def _clip_gradients(asked: Treatment) -> Remedy:
    kind, _, bound = asked.value.partition(":")
    return ClipGradients(kind, float(bound))


_MADE: Final[Mapping[str, Callable[[Treatment], Remedy]]] = {
    "control": lambda _: Remedy(),
    "lower_learning_rate": lambda asked: LowerLearningRate(float(asked.value)),
    "clip_gradients": _clip_gradients,
    "initializer": lambda _: Initializer(),
    "clean_input": lambda asked: FiniteSamples() if asked.value == "finite" else ScaledInputs(),
    "guard_division": Guard,
    "safe_where": Guard,
    "clip_predictions_or_from_logits": Guard,
    "mixed_precision_policy": lambda _: Float32(),
}


def remedy_for(asked: Treatment) -> Remedy:
    """The remedy of a checked treatment, ready to be put into a loop."""
    return _MADE[asked.remedy](asked)
