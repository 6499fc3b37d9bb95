"""The first line of a report: when, in what first, and why, as far as that is sure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tb_nanwatch.diagnose import place, restarted, words
from tb_nanwatch.diagnose.causes import Case, Cause
from tb_nanwatch.diagnose.causes.bad_learning_rate import learning_rate
from tb_nanwatch.format.records import Origin

OPERATED: Final = ("forward", "loss", "backward", "update", "metric")  # phases in which an operation made the value
SURE: Final = 0.8  # confidence from which a cause stands in the headline

CAUSE_WORDS: Final = {
    "bad_initialization": "initial weights that are too large",
    "bad_learning_rate": "a learning rate that is too high",
    "division_by_zero": "a division by zero",
    "domain_error": "a function outside of where it is defined",
    "exp_overflow": "an exponential that overflowed",
    "float16_overflow": "a number too large for float16",
    "growth_overflow": "numbers that grew until they overflowed",
    "input_extreme_scale": "data on an abnormal scale",
    "input_nonfinite": "bad values in the data",
    "label_invalid": "labels that the loss has no meaning for",
    "log_of_nonpositive": "a logarithm of zero or less",
    "loss_scale": "a loss scale that is too high",
    "masked_or_empty_reduction": "a sum or mean over nothing",
    "nan_gradient_through_where": "the gradient of a branch that was not selected",
    "sqrt_or_pow_gradient_at_zero": "the slope of a root at zero",
}


def headline(case: Case, causes: Sequence[Cause] = ()) -> str:
    """One line: when, in what first, and the likeliest of `causes` where that is sure."""
    incident, origin = case.incident, case.incident.origin
    step = f"{incident.first_step:,}"
    if case.op.known and origin.phase in OPERATED:
        told = f"{_operated(case)}{_because(case, causes)}"
        return f"{_event(case)}: {told}" if origin.phase != "metric" else f"{_beside(step)}: {told}"
    what = subject(origin)
    counts = words.bad_elements(origin.output)
    where = f"{what} ({counts})" if counts else what
    if origin.phase == "weights":
        return f"Already bad when watching began at step {step}: {where}"
    if origin.phase == "metric":
        return f"{_beside(step)}: {where}"
    if origin.phase == "input":
        return f"{_event(case)}: the batch already held bad values in {where}"
    return f"{_event(case)}: first in {where}{_because(case, causes)}"


def named(name: str) -> str:
    """A cause in words."""
    return CAUSE_WORDS.get(name, name.replace("_", " "))


def subject(origin: Origin) -> str:
    """The tensor of the origin; the update itself may not have been recorded, only what it left in the weights."""
    kind = "update" if origin.phase == "update" and origin.tensor_kind == "weight" else origin.tensor_kind
    return words.place(kind, origin.tensor, origin.layer)


def _event(case: Case) -> str:
    incident = case.incident
    anew = restarted.finite_since(case.run, incident)
    if anew is not None:
        return (
            f"Finite since it was started again at step {anew:,}; before that blew up at step {incident.first_step:,}"
        )
    if incident.recovered and incident.last_step is not None:
        return f"Non-finite for a while at {words.span(incident.first_step, incident.last_step)}"
    return f"Blew up at step {incident.first_step:,}"


def _beside(step: str) -> str:
    return f"A metric went bad at step {step}, training did not"


def _operated(case: Case) -> str:
    origin, op = case.incident.origin, case.op
    made = place.what(origin, op)
    if origin.phase == "update" and made.startswith("`"):
        made = f"the optimizer's {made}"
    what = f"{made}{place.line(origin, case.replay)}"
    if op.through_where:
        return f"{what} made {place.became(origin.output)} that the gradient brought back"
    return f"{what} was {place.became(origin.output)}"


def _because(case: Case, causes: Sequence[Cause]) -> str:
    """The end of the headline: ", because of a division by zero"; "" where no cause is sure, or it is told."""
    if case.op.through_where or not causes or causes[0].confidence < SURE or causes[0].name == "none":
        return ""
    if causes[0].name == "bad_learning_rate" and (rate := learning_rate(case)):
        return f", because of {named(causes[0].name)} ({words.magnitude(rate)})"
    return f", because of {named(causes[0].name)}"
