"""A layer whose relu puts out 0 for every sample: no gradient passes it, so nothing will ever wake it.

Many zeros behind a relu are health; all of them, with no gradient reaching the layer's weights, are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules.activations import FEWEST_STEPS, last_step, layers, stretch, stretches
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.store.run import Run

DEAD_SHARE: Final = 0.999  # of the outputs are exactly zero; shares of large tensors are estimated
FEWEST_MEASURED: Final = 3
BARE: Final = ("ReLU", "LeakyReLU", "Activation")  # layers without weights that may be a relu
QUIET: Final = 1e-7  # gradient over weights: nothing that an optimizer could work with


def dead_relu(run: Run) -> Iterable[Finding]:
    """At most one finding, on the first layer that is dead at the end of what is known."""
    last = last_step(run)
    if last - run.first_step + 1 < FEWEST_STEPS:
        return
    dead = [(info, since) for info in layers(run) if (since := _dead_since(run, info, last)) is not None]
    if not dead:
        return
    first, since = dead[0]
    names = [words.printable(info.layer or info.name) for info, _ in dead]  # a TF1 op may have no layer
    evidence = [f"every output of {names[0]} is exactly 0 and its weights receive no gradient"]
    if len(dead) > 1:
        others = words.listing(names[1:])
        evidence.append(f"so it is with {others}")
    remedies = ("use_activation_or_normalization", "initializer", "lower_learning_rate")
    yield Finding("dead_relu", "warning", first.name, since, last, tuple(evidence), remedies)


def _dead_since(run: Run, info: TensorInfo, last: int) -> int | None:
    """First step from which the layer is known to be dead until `last`; None where it is alive."""
    begin, end = stretches(run, last)[-1]
    part = stretch(run, info, begin, end)
    alive = np.flatnonzero(part.zero_share < DEAD_SHARE)
    steps = part.steps[alive[-1] + 1 :] if len(alive) else part.steps
    if len(steps) < FEWEST_MEASURED or end - steps[0] + 1 < FEWEST_STEPS:
        return None
    if not _without_gradient(run, info, int(steps[0]), last):
        return None
    for earlier, until in reversed(stretches(run, last)[:-1]):
        shares = stretch(run, info, earlier, until)
        if not len(shares.steps) or (shares.zero_share < DEAD_SHARE).any():
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
