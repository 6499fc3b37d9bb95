"""Layers that put out 0 for every sample, so that no gradient passes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.diagnose.rules.activations import FEWEST_STEPS, stretch, stretches
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.store.run import Run

SILENT_SHARE: Final = 0.999  # of the outputs are exactly zero; shares of large tensors are estimated
FEWEST_MEASURED: Final = 3
BARE: Final = ("ReLU", "LeakyReLU", "Activation")  # layers without weights that may be a relu
QUIET: Final = 1e-7  # gradient over weights: nothing that an optimizer could work with


Seen = tuple[NDArray[np.int64], NDArray[np.bool_]]  # steps, and whether the layer was silent at each


def silent_since(run: Run, info: TensorInfo, last: int) -> int | None:
    """First step from which the layer is known to put out nothing but 0 until `last`, and its weights to receive no
    gradient; None where that is not so.

    A norm of 0 says so at any step; where nearly all is 0, the share of zeros does, which full steps measure.
    """
    found = (_since(run, info, last, look) for look in (_by_norm, _by_share))
    return next((since for since in found if since is not None), None)


def _by_norm(run: Run, info: TensorInfo, first: int, last: int) -> Seen:
    norms = run.series(info.tag, "norm", first, last)
    known = np.isfinite(norms.values)
    return norms.steps[known], norms.values[known] == 0


def _by_share(run: Run, info: TensorInfo, first: int, last: int) -> Seen:
    part = stretch(run, info, first, last)
    return part.steps, part.zero_share >= SILENT_SHARE


def _since(run: Run, info: TensorInfo, last: int, look: Callable[[Run, TensorInfo, int, int], Seen]) -> int | None:
    begin, end = stretches(run, last)[-1]
    steps, silent = look(run, info, begin, end)
    alive = np.flatnonzero(~silent)
    steps = steps[alive[-1] + 1 :] if len(alive) else steps
    if len(steps) < FEWEST_MEASURED or end - steps[0] + 1 < FEWEST_STEPS:
        return None
    if not _without_gradient(run, info, int(steps[0]), last):
        return None
    for earlier, until in reversed(stretches(run, last)[:-1] if not len(alive) else []):
        before, silent = look(run, info, earlier, until)
        if not len(before) or not silent.all():
            break
        steps = before
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
