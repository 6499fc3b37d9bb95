"""The gradients of a network along its depth, as the rules on vanishing and exploding gradients look at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.store.run import Run

FEWEST_LAYERS: Final = 4
FEWEST_STEPS: Final = 20
FEWEST_BINS: Final = 10
BINS: Final = 64  # a long run is looked at in this many stretches; the more, the finer must be read
BAD_SHARE: Final = 0.95  # of the stretch
STRETCH_SHARE: Final = 0.25  # of the run
LARGEST_STEP_SHARE: Final = 0.5  # of the whole change along the depth, in one layer
ONE_WAY_SHARE: Final = 0.7  # of the layers change the same way
DEPTH_SAMPLES: Final = 24  # layers whose curves are read


def alive(run: Run, last: int) -> tuple[list[TensorInfo], NDArray[np.float64]]:
    """The layers that receive a gradient at all, in forward order, and their curves, float64[layers, BINS].

    A gradient of exactly zero is a dead or detached layer: another fault, with another remedy.
    """
    layers = thinned(matrices(run.kind("gradient")))
    if len(layers) < FEWEST_LAYERS:
        return [], np.zeros((0, BINS))
    curves = np.stack([curve(run, info.tag, last) for info in layers])
    found = np.nanmax(np.where(np.isnan(curves), 0.0, curves), axis=1) > 0
    return [info for info, a in zip(layers, found, strict=True) if a], curves[found]


@dataclass(frozen=True)
class Along:
    """The gradients of a network along its depth.

    ratio, relative float64[BINS]: the norm of the first layer's gradient to the last layer's, and to the norm of its
    own weights; way: -1 where gradients fall from the last layer to the first, 1 where they grow, 0 for neither.
    """

    layers: list[TensorInfo]
    ratio: NDArray[np.float64]
    relative: NDArray[np.float64]
    way: int

    def stretches(self, run: Run, last: int, bad: NDArray[np.bool_]) -> NDArray[np.int64] | None:
        """As `lasting`, where both were measured."""
        return lasting(run, bad, np.isfinite(self.ratio) & np.isfinite(self.relative), last)


def along(run: Run, last: int) -> Along | None:
    """The network of a run; None where it is too short, too shallow, or its first weights are not known."""
    if last - run.first_step + 1 < FEWEST_STEPS:
        return None
    layers, curves = alive(run, last)
    weight = run.by_tag(f"weight/{layers[0].name}") if len(layers) >= FEWEST_LAYERS else None
    if weight is None:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        return Along(layers, curves[0] / curves[-1], curves[0] / curve(run, weight.tag, last), one_way(curves))


def one_way(curves: NDArray[np.float64]) -> int:
    """-1 where the typical gradient falls from the last layer to the first, spread over the depth; 1 where it grows.

    0 where it does neither: one small layer is no decline.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        heights = np.nanmedian(np.where(curves > 0, np.log(curves), np.nan), axis=1)
    steps = -np.diff(heights)  # from first to last layer: positive where the layer behind receives less
    whole = heights[0] - heights[-1]
    if not np.isfinite(steps).all() or whole == 0:
        return 0
    way = 1 if whole > 0 else -1
    spread = np.mean(way * steps > 0) >= ONE_WAY_SHARE and (way * steps).max() <= LARGEST_STEP_SHARE * abs(whole)
    return way if spread else 0


def lasting(run: Run, bad: NDArray[np.bool_], measured: NDArray[np.bool_], last: int) -> NDArray[np.int64] | None:
    """Stretches (their numbers) from which on the measured ones are bad nearly throughout, to the end of what is known.

    None where there are too few of them, or they are too short a part of the run.
    """
    start = stretch(bad[measured])
    if start is None:
        return None
    index = np.flatnonzero(measured)[start:]
    first = int(starts(run, last)[index[0]])
    enough = last - first + 1 >= max(FEWEST_STEPS, STRETCH_SHARE * (last - run.first_step + 1))
    return index if enough else None


def matrices(gradients: Sequence[TensorInfo]) -> list[TensorInfo]:
    """The largest trainable tensor of each layer with at least two dimensions, in forward order."""
    largest: dict[str, TensorInfo] = {}
    for info in gradients:
        if info.shape is None or len(info.shape) < 2:
            continue  # biases and scales follow laws of their own
        layer = info.layer or info.name
        if layer not in largest or np.prod(info.shape) > np.prod(largest[layer].shape or ()):
            largest[layer] = info
    return sorted(largest.values(), key=lambda info: info.order)


def thinned(layers: list[TensorInfo]) -> list[TensorInfo]:
    """At most DEPTH_SAMPLES of the layers, evenly over the depth, first and last among them."""
    if len(layers) <= DEPTH_SAMPLES:
        return layers
    return [layers[i] for i in np.linspace(0, len(layers) - 1, DEPTH_SAMPLES).round().astype(int)]


def curve(run: Run, tag: str, last: int) -> NDArray[np.float64]:
    """Largest norm in each of BINS stretches of the run, float64[BINS]; NaN where none was measured."""
    binned = run.binned(tag, "norm", run.first_step, last, BINS)
    curve = np.full(BINS, np.nan)
    if len(binned.step):
        at = ((binned.step - run.first_step) * BINS // (last - run.first_step + 1)).clip(0, BINS - 1)
        np.fmax.at(curve, at, binned.high)
    return curve


def starts(run: Run, last: int) -> NDArray[np.int64]:
    """First step of each of the stretches of `_curve`."""
    length = last - run.first_step + 1
    return np.array([run.first_step + -(-i * length // BINS) for i in range(BINS)], np.int64)


def stretch(bad: NDArray[np.bool_]) -> int | None:
    """Where the longest stretch begins that reaches the end and is bad nearly throughout; None if there is none."""
    if len(bad) < FEWEST_BINS or not bad[-1]:
        return None
    share = np.cumsum(bad[::-1])[::-1] / np.arange(len(bad), 0, -1)
    good = np.flatnonzero((share >= BAD_SHARE) & bad)
    return int(good[0]) if len(good) and len(bad) - good[0] >= FEWEST_BINS else None
