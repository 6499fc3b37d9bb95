"""What the recorded numbers say of a step before its first bad value: finite, bad, or not measured at all."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_nanwatch.diagnose.window import norms
from tb_nanwatch.format.records import Incident
from tb_nanwatch.store.columns import NONFINITE
from tb_nanwatch.store.run import Run

#: Kinds of tensors that come right before each phase.
BEFORE: Final = {"forward": "input", "loss": "activation", "backward": "loss", "update": "gradient"}


def was_finite(run: Run, incident: Incident) -> bool | None:
    """Whether what came right before the first bad value was finite; None if that step did not measure it.

    Recorders may measure tensors in rotation, so the phase alone does not prove it.
    """
    kind, step = BEFORE.get(incident.origin.phase), incident.first_step
    infos = run.kind(kind) if kind is not None else ()
    if kind is None or not infos:
        return None
    if kind == "loss":
        state = np.concatenate([run.series(info.tag, "value", step, step).state for info in infos])
        return bool((state & NONFINITE == 0).all()) if len(state) else None
    values = norms(run, kind, step, step)[:, 0]
    if np.isinf(values).any():
        return False
    return None if np.isnan(values).any() else True
