"""Initial weights so large that every layer multiplies what it is given: overflow within the first few steps."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.causes.input_extreme_scale import HUGE
from tb_nanwatch.diagnose.operation import EXPONENTIALS
from tb_nanwatch.diagnose.window import norms

PHASES: Final = ("forward", "loss", "backward", "update")
EARLY_STEPS: Final = 10  # later, training itself has had its say
FEWEST_LAYERS: Final = 4
LEAST_FACTOR: Final = 1e4  # first to last layer; widths, pooling and normalization make far less
RISING_SHARE: Final = 0.8  # of the layers put out more than the one before
REMEDIES: Final = ("initializer", "use_activation_or_normalization", "lower_learning_rate")


def bad_initialization(case: Case) -> Cause | None:
    """An overflow before any update, or outputs that grow with depth at step 0 and an incident right after."""
    run, incident = case.run, case.incident
    if incident.origin.phase not in PHASES or run.first_step != 0 or incident.first_step > EARLY_STEPS:
        return None
    return _before_training(case) if incident.first_step == 0 else _grows_with_depth(case)


def _before_training(case: Case) -> Cause | None:
    """At step 0 only the data and the initial weights can have made numbers so large."""
    op, origin = case.op, case.incident.origin
    overflowed = op.outgrown or (op.overflowed and op.name in EXPONENTIALS) if op.known else origin.output.bad > 0
    data = max((batch.largest for batch in case.batch), default=0.0)
    if not overflowed or data >= HUGE or origin.phase not in ("forward", "backward", "loss"):
        return None
    reach = f", which reached {words.magnitude(data)} only" if data else ""
    seen = (
        f"it overflowed at step 0, before any update: nothing but the initial weights and the data{reach} went into it"
    )
    if origin.phase == "loss":  # the outputs of the layers were finite: it may be what the loss makes of them
        return Cause("bad_initialization", 0.3, (seen,), REMEDIES) if op.known else None
    return Cause("bad_initialization", 0.75 if op.known else 0.5, (seen,), REMEDIES)


def _grows_with_depth(case: Case) -> Cause | None:
    run = case.run
    infos = run.kind("activation")
    if not infos:
        return None
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
    return Cause("bad_initialization", 0.8, (evidence,), REMEDIES)
