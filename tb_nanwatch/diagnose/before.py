"""The last steps before an incident, number by number, as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.window import norms, total_norm
from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import Incident
from tb_nanwatch.store.columns import Series
from tb_nanwatch.store.run import Run

STEPS_BEFORE: Final = 12
STEPS_AFTER: Final = 2


@dataclass(frozen=True)
class Line:
    """One quantity at every step of a `Before`; None where it was not measured, NaN and infinities as they were."""

    label: str
    values: tuple[float | None, ...]

    @property
    def heights(self) -> tuple[float | None, ...]:
        """For a small chart on a log scale: 0 (lowest) to 1 (highest), -1 for not finite, None for not measured."""
        sizes = [abs(v) for v in self.values if v is not None and math.isfinite(v) and v != 0]
        low, high = (math.log(min(sizes)), math.log(max(sizes))) if sizes else (0.0, 0.0)
        return tuple(_height(value, low, max(high - low, math.log(2))) for value in self.values)


@dataclass(frozen=True)
class Before:
    """The steps around the beginning of an incident; `first_bad` is one of `steps`."""

    first_bad: int
    steps: tuple[int, ...]
    lines: tuple[Line, ...]


def _height(value: float | None, low: float, extent: float) -> float | None:
    if value is None:
        return None
    if not math.isfinite(value):
        return -1.0
    return 0.0 if value == 0 else (math.log(abs(value)) - low) / extent


def before(run: Run, incident: Incident) -> Before:
    """Loss, total gradient and weight norm and the first bad tensor around the first bad step of `incident`."""
    bad = incident.first_step
    first, last = max(0, bad - STEPS_BEFORE), max(bad, min(bad + STEPS_AFTER, run.last_step))
    steps = np.arange(first, last + 1, dtype=np.int64)
    lines = [
        Line(words.place("loss", info.name), _aligned(run.series(info.tag, "value", first, last), steps))
        for info in run.kind("loss")[:2]
    ]
    for kind, label in (("gradient", "norm of all gradients"), ("weight", "norm of all weights")):
        if run.kind(kind):
            # The steps before the window are looked at too, so that norms measured in rotation are known at its start.
            lead = min(first, run.header.every)
            total = total_norm(norms(run, kind, first - lead, last))[lead:]
            lines.append(Line(label, tuple(_total(float(value)) for value in total)))
    origin = incident.origin
    info = run.by_tag(f"{origin.tensor_kind}/{origin.tensor}")
    if info is not None and info.kind not in ("loss", "metric", "scalar"):
        label = f"norm of {words.place(info.kind, info.name, info.layer)}"
        lines.append(Line(label, _aligned(run.series(info.tag, "norm", first, last), steps)))
    kept = [line for line in lines if any(value is not None for value in line.values)]
    measured = _any_measured(kept, len(steps))
    return Before(
        bad,
        tuple(int(s) for s, keep in zip(steps, measured, strict=True) if keep or s == bad),
        tuple(
            Line(line.label, tuple(v for v, s, m in zip(line.values, steps, measured, strict=True) if m or s == bad))
            for line in kept
        ),
    )


def _total(value: float) -> float | None:
    if np.isnan(value):
        return None
    return value if np.isfinite(value) else float("nan")  # which kind of non-finite a sum would be says nothing


def _any_measured(lines: Iterable[Line], size: int) -> NDArray[np.bool_]:
    measured = np.zeros(size, bool)
    for line in lines:
        measured |= np.array([value is not None for value in line.values], bool)
    return measured


def _aligned(series: Series, steps: NDArray[np.int64]) -> tuple[float | None, ...]:
    known = {
        int(step): value_of(float(value), int(state))
        for step, value, state in zip(series.steps, series.values, series.state, strict=True)
    }
    return tuple(known.get(int(step)) for step in steps)


def value_of(value: float, state: int) -> float | None:
    """The value of a point of a series, from its finite part and its state bits; None if nothing was measured."""
    if state & (magnitude.NAN | magnitude.UNKNOWN):
        return float("nan")
    if state & magnitude.POS_INF:
        return float("nan") if state & magnitude.NEG_INF else float("inf")
    if state & magnitude.NEG_INF:
        return float("-inf")
    return None if np.isnan(value) else value
