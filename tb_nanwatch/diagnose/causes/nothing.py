"""The honest answer where the recorded numbers prove no cause."""

from __future__ import annotations

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.causes.cause import Case, Cause


def nothing(case: Case) -> Cause:
    """Name "none", confidence 0, and what is known."""
    incident = case.incident
    evidence = []
    if incident.origin.phase == "weights":
        evidence.append("the weights were bad before the first recorded step: they came so")
    elif case.trends is None:
        evidence.append("it follows earlier incidents, so the steps before it were not looked at")
    elif case.run_up:
        trend = case.run_up[0]
        evidence.append(
            f"{trend.label} rose {words.magnitude(trend.factor)} times in the steps before, to "
            f"{words.magnitude(trend.last)}, which does not by itself explain a non-finite value"
        )
    elif case.trends:
        evidence.append("nothing grew in the steps before to a size that would explain it")
    elif incident.first_step > 0 and case.run.first_step < incident.first_step:
        evidence.append("nothing grew in the steps before: the first bad value came without warning")
    else:
        evidence.append("there is no recorded step before it to compare with")
    if not incident.origin.op_type and incident.origin.phase != "weights":  # no step made those
        evidence.append("the operation that made the first bad value was not determined")
    return Cause("none", 0.0, tuple(evidence))
