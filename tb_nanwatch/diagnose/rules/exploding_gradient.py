"""Gradients that grow from layer to layer on the way back, so that the first layers are thrown about: the mirror of
vanishing_gradient.

AUTOTRAINER calls a ratio of gradient norms, first to last layer, above 70 an explosion; networks of forty layers with
batch normalization reach that and train. Here the ratio is the mirror of the one for vanishing, 1e3, and the gradient
of the first layer must exceed the norm of its weights, so that a plain step at learning rate 1 would replace them. As
there, the growth is spread over the depth (raw pixels make one large gradient, in the first layer alone), is
there at nearly every step of a stretch, and the stretch is long and reaches the end of what is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules import depth
from tb_nanwatch.diagnose.rules.activations import last_step
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.store.run import Run

RATIO: Final = 1e3
RELATIVE_NORM: Final = 1.0


def exploding_gradient(run: Run) -> Iterable[Finding]:
    """At most one finding, on the first layer that receives a gradient."""
    last = last_step(run)
    if last - run.first_step + 1 < depth.FEWEST_STEPS:
        return
    layers, curves = depth.alive(run, last)
    weight = run.by_tag(f"weight/{layers[0].name}") if len(layers) >= depth.FEWEST_LAYERS else None
    if weight is None or depth.one_way(curves) <= 0:
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = curves[0] / curves[-1]
        relative = curves[0] / depth.curve(run, weight.tag, last)
    measured = np.isfinite(ratio) & np.isfinite(relative)
    index = depth.lasting(run, (ratio > RATIO) & (relative > RELATIVE_NORM), measured, last)
    if index is None:
        return
    front, back = words.printable(layers[0].name), words.printable(layers[-1].name)
    times, weights = float(np.median(ratio[index])), float(np.median(relative[index]))
    evidence = (
        f"the gradient of {front} is {words.magnitude(times)} times that of {back}, in the median of these steps",
        f"it is {words.magnitude(weights)} times the norm of the weights themselves",
        f"the gradient grows over {len(layers)} layers, from back to front",
    )
    remedies = ("clip_gradients", "initializer", "use_activation_or_normalization", "lower_learning_rate")
    yield Finding(
        "exploding_gradient",
        "warning",
        layers[0].name,
        int(depth.starts(run, last)[index[0]]),
        last,
        evidence,
        remedies,
        "gradient",
    )
