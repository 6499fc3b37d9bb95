"""Looks ahead while training: says once, before it happens, that numbers will outgrow their dtype.

It sees the rows that are written anyway. At nearly every step that costs one comparison: only where a number has come
a third of the way to its dtype's maximum are the last steps put side by side.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.record import console
from tb_nanwatch.stats import dtypes
from tb_nanwatch.stats.doubling import WINDOW
from tb_nanwatch.stats.overflow import NEAR, Forecast, soonest

LAGS: Final = (4, 8, 16, 32, 64, WINDOW - 1)  # rows back, with which the newest is compared before a close look
RISEN: Final = 2.0  # times the lowest of them, and no less than half of the highest
PACE: Final = LAGS[0]  # rows from which it is read how soon numbers may be at the limit
SOON: Final = 48  # steps
HURRIED: Final = 3  # steps between close looks at numbers that may be there soon
EVERY: Final = 16  # and at others
KINDS: Final = ("gradient", "weight", "activation")
LARGEST_STORED: Final = dtypes.largest("float32")  # losses are held there in the file


class Limits:
    """Of the numbers of a row: first norms, then losses. peaks float64[m], log2 of largest element over norm."""

    def __init__(self, infos: Sequence[TensorInfo], losses: Sequence[TensorInfo]) -> None:
        self.infos = (*infos, *losses)
        self.norms = len(infos)
        watched = [i.kind == "loss" or (i.kind in KINDS and (i.kind != "weight" or i.trainable)) for i in self.infos]
        self.largest = np.where(watched, [dtypes.largest(i.dtype) for i in self.infos], np.nan)
        self.peaks = np.zeros(len(self.infos))
        self.near = self.largest**NEAR  # NaN is never reached

    def measured(self, places: Any, largest: Any, norms: Any) -> None:
        """Take note of largest elements beside norms, float64[k] each."""
        known = (largest > 0) & (norms > 0) & np.isfinite(largest) & np.isfinite(norms)
        self.peaks[np.asarray(places)[known]] = np.minimum(0.0, np.log2(largest[known] / norms[known]))


@dataclass(frozen=True)
class _Seen:
    """A step. values float64[m + k], norms and then losses; codes uint16[m], None where they are those of the norms."""

    step: int
    values: Any
    codes: Any


class Lookout:
    """Follows a run step by step until it has given its one warning."""

    def __init__(self) -> None:
        self._seen: dict[Limits, deque[_Seen]] | None = {}  # networks that train in turn have rows of their own
        self._last = -EVERY  # step of the last close look

    def forget(self) -> None:
        """What follows an incident begins anew."""
        if self._seen is not None:
            self._seen.clear()

    def follow(self, step: int, limits: Limits, norms: Any, codes: Any, losses: Any) -> str | None:
        """Take in the next step; a warning the first time that there is something to warn of.

        norms float64[m]; codes uint16[m], or None where they are those of the norms; losses float64[k].
        """
        if self._seen is None:
            return None
        values = np.abs(np.append(norms, losses))
        if limits not in self._seen:  # a new trace of the step: older ones may never run again
            self._seen = {k: rows for k, rows in self._seen.items() if rows[-1].step > step - WINDOW}
            self._seen[limits] = deque(maxlen=WINDOW)
        seen = self._seen[limits]
        seen.append(_Seen(step, values, codes))
        near = values >= limits.near
        since = step - self._last
        if since < HURRIED or not near.any():
            return None
        rows = _rising(seen, limits, np.flatnonzero(near), since >= EVERY)
        if not len(rows):
            return None
        self._last = step
        found = _look(seen, limits, rows)
        if found is None:
            return None
        self._seen = None
        return _sentence(limits.infos[rows[found.row]], found)


def _rising(seen: deque[_Seen], limits: Limits, rows: Any, whole: bool) -> Any:
    """Of the rows, those that rose above earlier steps; unless `whole` none if none may be at its limit soon."""
    lags = [lag for lag in (*LAGS, len(seen) - 1) if 0 < lag < len(seen)]
    if not lags:
        return rows[:0]
    now = seen[-1].values[rows]
    earlier = np.stack([seen[-1 - lag].values[rows] for lag in lags])
    earlier = np.where(np.isfinite(earlier), earlier, np.nan)
    rising = (now >= RISEN * np.fmin.reduce(earlier)) & (RISEN * now >= np.fmax.reduce(earlier))
    if whole or not rising.any():
        return rows[rising]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        left = np.log2(limits.largest[rows]) - np.log2(now)
        soon = left * PACE < (np.log2(now) - np.log2(earlier[0])) * SOON
    return rows[rising] if (rising & soon).any() else rows[:0]


def _look(seen: deque[_Seen], limits: Limits, rows: Any) -> Forecast | None:
    recent = [s for s in seen if s.step > seen[-1].step - WINDOW]
    values = np.stack([s.values[rows] for s in recent])
    values[np.isfinite(values) & (values > LARGEST_STORED)] = LARGEST_STORED
    norms = rows < limits.norms
    values[:, norms] = magnitude.decode(magnitude.encode(np.stack([s.values[rows[norms]] for s in recent])))
    for number, s in enumerate(recent):  # as a reader of the file has them
        if s.codes is not None:
            values[number, norms] = magnitude.decode(s.codes[rows[norms]])
    steps = np.array([s.step for s in recent], np.int64)
    return soonest(steps, values.T, limits.largest[rows], lambda row: float(limits.peaks[rows[row]]))


def _sentence(info: TensorInfo, found: Forecast) -> str:
    """One line for the console."""
    what = console.WHERE.get(info.kind, "")
    name = "the loss" if info.tag == "loss/loss" else f"{what}{info.name.removesuffix('/output')}"
    return (
        f"{name} {found.growth.words()} and reaches the {info.dtype} maximum ({_maximum(info.dtype)}) in "
        f"{found.about()}, near step {found.step:,}"
    )


def _maximum(dtype: str) -> str:
    most = dtypes.largest(dtype)
    return f"{most:,.0f}" if most < 1e6 else f"{most:.1e}".replace("e+", "e")
