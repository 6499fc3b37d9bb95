"""What stayed finite around an incident, as far as the recorded numbers prove it."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_nanwatch.diagnose.window import TILE_BINS, norms
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


def loss_stayed_finite(run: Run, incident: Incident) -> bool:
    """Whether the loss was finite at every step of the incident: fused kernels turn NaN into 0, and it looks well."""
    last = run.last_step if incident.last_step is None else incident.last_step
    lines = [run.binned(info.tag, "value", incident.first_step, last, 256) for info in run.kind("loss")]
    state = np.concatenate([line.state for line in lines]) if lines else np.zeros(0, np.uint8)
    return len(state) > 0 and bool((state & NONFINITE == 0).all())


#: Where values may be non-finite without doing damage, in the order of a step.
STRAY_KINDS: Final = {"input": "the inputs", "activation": "the outputs of layers", "gradient": "the gradients"}


def strays(run: Run) -> tuple[str, ...]:
    """Where a run holds non-finite values at any step, in words; empty if all that was recorded is finite."""
    level = max(0, run.last_step // TILE_BINS).bit_length()  # one tile holds the whole run
    return tuple(
        noun
        for kind, noun in STRAY_KINDS.items()
        if run.kind(kind) and (run.tile(kind, level, 0).state & NONFINITE).any()
    )
