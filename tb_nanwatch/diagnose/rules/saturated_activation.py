"""Sigmoid or tanh layers that sit at the ends of their range, where their slope and so the gradient is nearly 0.

AWS and DeepDiagnosis ask for half of the inputs beyond some bound. What share of elements is near the ends is not
recorded; but the average slope follows from what is: it is 1 - mean(x^2) for tanh and mean(x) - mean(x^2) for sigmoid.
Where a log does not say which of them a layer applies, only a layer of a kind that may is judged. The outputs must
touch the end at every step looked at. A network may learn to saturate a gate, and its output does when it is sure: so
it must be so from the very beginning, and not at the end of the network. A sigmoid whose every output is exactly 0 and
passes no gradient is saturated wherever and whenever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules.activations import (
    FEWEST_STEPS,
    Stretch,
    last_step,
    layers,
    stretch,
    stretches,
)
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.diagnose.rules.silent import silent_since
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.store.run import Run

# fmt: off
CLASSES: Final = frozenset(
    {
        "Dense", "EinsumDense", "Conv1D", "Conv2D", "Conv3D", "DepthwiseConv2D", "SeparableConv1D",
        "SeparableConv2D", "Conv2DTranspose", "Activation", "SimpleRNN", "GRU", "LSTM",
    }
)
# fmt: on
KNOWN: Final = ("sigmoid", "tanh")
TANH_SLOPE: Final = 0.1  # on average; 1 at zero
SIGMOID_SLOPE: Final = 0.02  # on average; 0.25 at most
TOP: Final = (0.985, 1.006)  # norms and maxima are stored to half a percent
FEWEST_MEASURED: Final = 3
RAW_INPUT: Final = 50.0


def saturated_activation(run: Run) -> Iterable[Finding]:
    """At most one finding, on the first layer that is saturated."""
    last = last_step(run)
    infos = layers(run)
    if last - run.first_step + 1 < FEWEST_STEPS:
        return
    found = [(info, known) for info in infos[:-1] if (known := _slope(run, info, last)) is not None]
    if not found:
        yield from _at_zero(run, infos, last)
        return
    first, (kind, slope) = found[0]
    raw = _largest_input(run) if first.order == infos[0].order else 0.0
    average = words.magnitude(slope) if slope >= 0.01 else "below 0.01"
    best = "1" if kind == "tanh" else "0.25"
    where = f"the outputs of {words.printable(first.layer)} sit at the ends of {kind}"
    evidence = [f"{where}, where its slope is {average} on average and {best} at best: hardly any gradient passes"]
    if len(found) > 1:
        evidence.append(f"so do those of {words.listing([words.printable(info.layer) for info, _ in found[1:]])}")
    if raw >= RAW_INPUT:
        evidence.append(f"its input reaches {words.magnitude(raw)}: it is not scaled to about 1")
    scaled = ("clean_input", "initializer") if raw >= RAW_INPUT else ("initializer", "clean_input")
    yield Finding(
        "saturated_activation",
        "warning",
        first.name,
        run.first_step,
        last,
        tuple(evidence),
        (*scaled, "use_activation_or_normalization"),
        first.kind,
    )


def _at_zero(run: Run, infos: list[TensorInfo], last: int) -> Iterable[Finding]:
    sigmoids = [info for info in infos if info.activation == "sigmoid"]
    found = [(info, since) for info in sigmoids if (since := silent_since(run, info, last)) is not None]
    if not found:
        return
    first, since = found[0]
    names = [words.printable(info.layer or info.name) for info, _ in found]
    evidence = [f"every output of {names[0]} is exactly 0, the lower end of sigmoid: no gradient reaches its weights"]
    if len(found) > 1:
        evidence.append(f"so it is with {words.listing(names[1:])}")
    raw = _largest_input(run)
    if raw >= RAW_INPUT:
        evidence.append(f"the network's input reaches {words.magnitude(raw)}: it is not scaled to about 1")
    first_two = ("clean_input", "initializer") if raw >= RAW_INPUT else ("initializer", "clean_input")
    remedies = (*first_two, "use_activation_or_normalization")
    yield Finding("saturated_activation", "warning", first.name, since, last, tuple(evidence), remedies, first.kind)


def _slope(run: Run, info: TensorInfo, last: int) -> tuple[str, float] | None:
    """Which function the layer saturates, and the average slope; None where it does not."""
    if info.activation not in KNOWN if info.activation else info.layer_class not in CLASSES:
        return None
    kinds, slopes, measured = set(), [], 0
    for begin, end in stretches(run, last):
        part = stretch(run, info, begin, end)
        kind = _saturated(part, info)
        if kind is None or info.activation not in ("", kind):
            return None
        kinds.add(kind)
        measured += len(part.steps)
        slopes.append(_average(kind, part))
    if len(kinds) != 1 or measured < FEWEST_MEASURED:
        return None
    return kinds.pop(), max(0.0, float(np.concatenate(slopes).mean()))


def _average(kind: str, part: Stretch) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.asarray((1.0 if kind == "tanh" else part.mean) - part.mean_square, np.float64)


def _saturated(part: Stretch, info: TensorInfo) -> str | None:
    if not len(part.steps) or np.isnan(part.mean_square).any():
        return None
    if not ((part.max_abs >= TOP[0]) & (part.max_abs <= TOP[1])).all():
        return None
    if (_average("tanh", part) <= TANH_SLOPE).all():
        return "tanh"
    softmax = np.isclose(part.mean, 1 / (info.shape or (1,))[-1], rtol=0.02).all()  # its rows sum to 1: a gate
    sigmoid = (np.abs(_average("sigmoid", part)) <= SIGMOID_SLOPE) & (part.mean > SIGMOID_SLOPE)
    return "sigmoid" if sigmoid.all() and not softmax else None


def _largest_input(run: Run) -> float:
    """Of the features; a first look is enough for a scale."""
    sizes = [
        run.series(info.tag, "max_abs", run.first_step, run.first_step + 10 * max(run.header.every, 1)).values
        for info in run.kind("input")
        if not info.name.startswith("y")
    ]
    return max((float(values[np.isfinite(values)].max(initial=0.0)) for values in sizes), default=0.0)
