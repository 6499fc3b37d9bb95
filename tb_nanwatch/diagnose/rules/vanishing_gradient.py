"""Gradients that shrink from layer to layer on the way back, until the first layers receive nothing.

AUTOTRAINER (the detector with the best documented defaults) asks for a ratio of gradient norms, first to last layer,
below 1e-3 and a first-layer norm below 1e-4. The absolute bound depends on the scale of the loss; here it is taken
relative to the weights' norm, where it says how far a step can move the layer. Both alone would blame healthy
networks, so three more things must hold: the decline is spread over the depth (one small layer is no decline), it
is there at nearly every step of a stretch, and the stretch is long and reaches the end of what is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules import depth
from tb_nanwatch.diagnose.rules.activations import last_step
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.store.run import Run

RATIO: Final = 1e-3
RELATIVE_NORM: Final = 1e-4


def vanishing_gradient(run: Run) -> Iterable[Finding]:
    """At most one finding, on the first trainable layer that still receives a gradient."""
    last = last_step(run)
    net = depth.along(run, last)
    if net is None or net.way >= 0:
        return
    index = net.stretches(run, last, (net.ratio < RATIO) & (net.relative < RELATIVE_NORM))
    if index is None:
        return
    yield Finding(
        rule="vanishing_gradient",
        severity="warning",
        tensor=net.layers[0].name,
        first_step=int(depth.starts(run, last)[index[0]]),
        last_step=last,
        evidence=_evidence(net.layers, float(np.median(net.ratio[index])), float(np.median(net.relative[index]))),
        remedies=("use_activation_or_normalization", "initializer"),
        kind="gradient",
    )


def _evidence(layers: Sequence[TensorInfo], ratio: float, relative: float) -> tuple[str, ...]:
    front, back = words.printable(layers[0].name), words.printable(layers[-1].name)
    return (
        f"the gradient of {front} is {words.magnitude(ratio)} times that of {back}, in the median of these steps",
        f"it is {words.magnitude(relative)} of the norm of the weights themselves, so the layer hardly moves",
        f"the gradient falls over {len(layers)} layers, from back to front",
    )
