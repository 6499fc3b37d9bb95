"""A slot of the optimizer that was lost before the weights: what the replay found of it, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tb_nanwatch.diagnose import words
from tb_nanwatch.format.records import Incident


def told(replay: Mapping[str, Any]) -> dict[str, Any] | None:
    """The slot's `name`, the `step` that made it bad (None: one before the `oldest` that was kept), whether it is NaN.

    None where no slot was lost.
    """
    slot = replay.get("slot") or {}
    name, step, oldest = slot.get("name"), slot.get("step"), slot.get("oldest")
    if not isinstance(name, str) or not isinstance(oldest, int):
        return None
    known = step if isinstance(step, int) else None
    return {"name": words.printable(name), "step": known, "oldest": oldest, "nan": bool(slot.get("nan"))}


def step(incident: Incident, replay: Mapping[str, Any]) -> int:
    """The step of the origin: an earlier one than the incident's first where a slot was lost in it."""
    slot = told(replay)
    return incident.first_step if slot is None or slot["step"] is None else int(slot["step"])


def sentence(incident: Incident, replay: Mapping[str, Any]) -> str:
    """As in "Adam's second moment of dense/kernel overflowed at step 41; ..." "" where no slot was lost."""
    slot = told(replay)
    if slot is None:
        return ""
    if slot["step"] is None:
        return f"{slot['name']} was not finite any more before step {slot['oldest']:,}, the oldest that was kept."
    became = "became NaN" if slot["nan"] else "overflowed"
    return (
        f"{slot['name']} {became} at step {slot['step']:,}; the weights followed at step {incident.first_step:,}, "
        "when they were changed by it."
    )
