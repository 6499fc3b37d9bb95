"""Layers that put out 0 for every sample, so that no gradient passes them."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_nanwatch.diagnose.rules.activations import FEWEST_STEPS, stretch, stretches
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.store.run import Run

SILENT_SHARE: Final = 0.999  # of the outputs are exactly zero; shares of large tensors are estimated
FEWEST_MEASURED: Final = 3
BARE: Final = ("ReLU", "LeakyReLU", "Activation")  # layers without weights that may be a relu
QUIET: Final = 1e-7  # gradient over weights: nothing that an optimizer could work with


def silent_since(run: Run, info: TensorInfo, last: int) -> int | None:
    """First step from which the layer is known to put out nothing but 0 until `last`, and its weights to receive no
    gradient; None where that is not so.
    """
    begin, end = stretches(run, last)[-1]
    part = stretch(run, info, begin, end)
    alive = np.flatnonzero(part.zero_share < SILENT_SHARE)
    steps = part.steps[alive[-1] + 1 :] if len(alive) else part.steps
    if len(steps) < FEWEST_MEASURED or end - steps[0] + 1 < FEWEST_STEPS:
        return None
    if not _without_gradient(run, info, int(steps[0]), last):
        return None
    for earlier, until in reversed(stretches(run, last)[:-1]):
        shares = stretch(run, info, earlier, until)
        if not len(shares.steps) or (shares.zero_share < SILENT_SHARE).any():
            break
        steps = shares.steps
    return int(steps[0])


def _without_gradient(run: Run, info: TensorInfo, first: int, last: int) -> bool:
    gradients = [g for g in run.kind("gradient") if g.layer == info.layer]
    if not gradients:
        return info.layer_class in BARE
    for gradient in gradients:
        values = run.series(gradient.tag, "norm", first, last).values
        weight = run.series(f"weight/{gradient.name}", "norm", first, last).values
        scale = float(np.median(weight[np.isfinite(weight)])) if np.isfinite(weight).any() else 0.0
        if len(values) < FEWEST_MEASURED or not (np.abs(values) <= QUIET * scale).all():
            return False
    return True
