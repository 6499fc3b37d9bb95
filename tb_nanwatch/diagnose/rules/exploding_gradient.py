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
    net = depth.along(run, last)
    if net is None or net.way <= 0:
        return
    index = net.stretches(run, last, (net.ratio > RATIO) & (net.relative > RELATIVE_NORM))
    if index is None:
        return
    front, back = words.printable(net.layers[0].name), words.printable(net.layers[-1].name)
    times, weights = float(np.median(net.ratio[index])), float(np.median(net.relative[index]))
    evidence = (
        f"the gradient of {front} is {words.magnitude(times)} times that of {back}, in the median of these steps",
        f"it is {words.magnitude(weights)} times the norm of the weights themselves",
        f"the gradient grows over {len(net.layers)} layers, from back to front",
    )
    remedies = ("clip_gradients", "initializer", "use_activation_or_normalization", "lower_learning_rate")
    yield Finding(
        "exploding_gradient",
        "warning",
        net.layers[0].name,
        int(depth.starts(run, last)[index[0]]),
        last,
        evidence,
        remedies,
        "gradient",
    )
