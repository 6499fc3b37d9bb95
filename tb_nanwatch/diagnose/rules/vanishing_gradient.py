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
from numpy.typing import NDArray

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.store.run import Run

RATIO: Final = 1e-3
RELATIVE_NORM: Final = 1e-4
FEWEST_LAYERS: Final = 4
FEWEST_STEPS: Final = 20
FEWEST_BINS: Final = 10
BINS: Final = 64  # a long run is looked at in this many stretches; the more, the finer must be read
BAD_SHARE: Final = 0.95  # of the stretch
STRETCH_SHARE: Final = 0.25  # of the run
LARGEST_DROP_SHARE: Final = 0.5  # of the whole decline, in one layer
FALLING_SHARE: Final = 0.7  # of the layers receive less than the one behind them
DEPTH_SAMPLES: Final = 24  # layers whose curves are read


def vanishing_gradient(run: Run) -> Iterable[Finding]:
    """At most one finding, on the first trainable layer that still receives a gradient."""
    last = run.incidents[0].first_step - 1 if run.incidents else run.last_step
    layers = _thinned(_one_per_layer(run.kind("gradient")))
    if len(layers) < FEWEST_LAYERS or last - run.first_step + 1 < FEWEST_STEPS:
        return
    curves = np.stack([_curve(run, info.tag, last) for info in layers])
    # A gradient of exactly zero is a dead or detached layer: another fault, with another remedy.
    alive = np.nanmax(np.where(np.isnan(curves), 0.0, curves), axis=1) > 0
    layers, curves = [info for info, a in zip(layers, alive, strict=True) if a], curves[alive]
    weight = run.by_tag(f"weight/{layers[0].name}") if len(layers) >= FEWEST_LAYERS else None
    if weight is None or not _declines(curves):
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = curves[0] / curves[-1]
        relative = curves[0] / _curve(run, weight.tag, last)
    measured = np.isfinite(ratio) & np.isfinite(relative)
    bad = (ratio < RATIO) & (relative < RELATIVE_NORM)
    start = _stretch(bad[measured])
    if start is None:
        return
    index = np.flatnonzero(measured)[start:]
    starts = _starts(run, last)
    first = int(starts[index[0]])
    if last - first + 1 < max(FEWEST_STEPS, STRETCH_SHARE * (last - run.first_step + 1)):
        return
    yield Finding(
        rule="vanishing_gradient",
        severity="warning",
        tensor=layers[0].name,
        first_step=first,
        last_step=last,
        evidence=_evidence(layers, float(np.median(ratio[index])), float(np.median(relative[index]))),
        remedies=("use_activation_or_normalization", "initializer"),
    )


def _evidence(layers: Sequence[TensorInfo], ratio: float, relative: float) -> tuple[str, ...]:
    front, back = words.printable(layers[0].name), words.printable(layers[-1].name)
    return (
        f"the gradient of {front} is {words.magnitude(ratio)} times that of {back}, in the median of these steps",
        f"it is {words.magnitude(relative)} of the norm of the weights themselves, so the layer hardly moves",
        f"the gradient falls over {len(layers)} layers, from back to front",
    )


def _one_per_layer(gradients: Sequence[TensorInfo]) -> list[TensorInfo]:
    """The largest trainable tensor of each layer with at least two dimensions, in forward order."""
    largest: dict[str, TensorInfo] = {}
    for info in gradients:
        if info.shape is None or len(info.shape) < 2:
            continue  # biases and scales follow laws of their own
        layer = info.layer or info.name
        if layer not in largest or np.prod(info.shape) > np.prod(largest[layer].shape or ()):
            largest[layer] = info
    return sorted(largest.values(), key=lambda info: info.order)


def _thinned(layers: list[TensorInfo]) -> list[TensorInfo]:
    """At most DEPTH_SAMPLES of the layers, evenly over the depth, first and last among them."""
    if len(layers) <= DEPTH_SAMPLES:
        return layers
    return [layers[i] for i in np.linspace(0, len(layers) - 1, DEPTH_SAMPLES).round().astype(int)]


def _curve(run: Run, tag: str, last: int) -> NDArray[np.float64]:
    """Largest norm in each of BINS stretches of the run, float64[BINS]; NaN where none was measured."""
    binned = run.binned(tag, "norm", run.first_step, last, BINS)
    curve = np.full(BINS, np.nan)
    if len(binned.step):
        at = ((binned.step - run.first_step) * BINS // (last - run.first_step + 1)).clip(0, BINS - 1)
        np.fmax.at(curve, at, binned.high)
    return curve


def _starts(run: Run, last: int) -> NDArray[np.int64]:
    """First step of each of the stretches of `_curve`."""
    length = last - run.first_step + 1
    return np.array([run.first_step + -(-i * length // BINS) for i in range(BINS)], np.int64)


def _declines(curves: NDArray[np.float64]) -> bool:
    """Whether the typical gradient falls from the last layer to the first, spread over the depth."""
    with np.errstate(divide="ignore", invalid="ignore"):
        heights = np.nanmedian(np.where(curves > 0, np.log(curves), np.nan), axis=1)
    steps = np.diff(heights)  # from first to last layer: positive where the layer behind receives more
    whole = heights[-1] - heights[0]
    if not np.isfinite(steps).all() or whole <= 0:
        return False
    return bool(np.mean(steps > 0) >= FALLING_SHARE and steps.max() <= LARGEST_DROP_SHARE * whole)


def _stretch(bad: NDArray[np.bool_]) -> int | None:
    """Where the longest stretch begins that reaches the end and is bad nearly throughout; None if there is none."""
    if len(bad) < FEWEST_BINS or not bad[-1]:
        return None
    share = np.cumsum(bad[::-1])[::-1] / np.arange(len(bad), 0, -1)
    good = np.flatnonzero((share >= BAD_SHARE) & bad)
    return int(good[0]) if len(good) and len(bad) - good[0] >= FEWEST_BINS else None
