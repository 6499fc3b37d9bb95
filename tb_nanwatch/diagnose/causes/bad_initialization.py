"""Initial weights so large that every layer multiplies what it is given: overflow within the first few steps."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.window import norms

PHASES: Final = ("forward", "loss", "backward", "update")
EARLY_STEPS: Final = 10  # later, training itself has had its say
FEWEST_LAYERS: Final = 4
LEAST_FACTOR: Final = 1e4  # first to last layer; widths, pooling and normalization make far less
RISING_SHARE: Final = 0.8  # of the layers put out more than the one before


def bad_initialization(case: Case) -> Cause | None:
    """Outputs of the layers that grow with depth at the very first step, and an incident right after it."""
    run, incident = case.run, case.incident
    if incident.origin.phase not in PHASES or run.first_step != 0 or not 0 < incident.first_step <= EARLY_STEPS:
        return None
    infos = run.kind("activation")
    sizes = norms(run, "activation", 0, 0)[:, 0]
    known = np.flatnonzero(np.isfinite(sizes) & (sizes > 0))
    if len(known) < FEWEST_LAYERS:
        return None
    sizes = sizes[known]
    if sizes[-1] < LEAST_FACTOR * sizes[0] or np.mean(np.diff(sizes) > 0) < RISING_SHARE:
        return None
    first, last = infos[known[0]], infos[known[-1]]
    evidence = (
        f"at step 0, before training had changed much, the norm of the layers' outputs grew from "
        f"{words.magnitude(float(sizes[0]))} at {words.printable(first.layer or first.name)} to "
        f"{words.magnitude(float(sizes[-1]))} at {words.printable(last.layer or last.name)}, over {len(known)} layers"
    )
    return Cause("bad_initialization", 0.8, (evidence,), ("initializer", "use_activation_or_normalization"))
