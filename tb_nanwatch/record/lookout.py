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
from tb_nanwatch.stats import dtypes
from tb_nanwatch.stats.doubling import WINDOW
from tb_nanwatch.stats.overflow import NEAR, Forecast, soonest

PACE: Final = 4  # steps from which it is read how soon numbers may be at the limit
SOON: Final = 48  # steps
HURRIED: Final = 3  # steps between close looks at numbers that may be there soon
EVERY: Final = 16  # and at others
KINDS: Final = ("gradient", "weight", "activation")
LARGEST_STORED: Final = dtypes.largest("float32")  # losses are held there in the file


class Limits:
    """Of the numbers of a row: first norms, then losses. peaks float64[m], log2 of largest element over norm."""

    def __init__(self, infos: Sequence[TensorInfo], losses: Sequence[TensorInfo]) -> None:
        self.infos = (*infos, *losses)
        watched = [i.kind == "loss" or (i.kind in KINDS and (i.kind != "weight" or i.trainable)) for i in self.infos]
        self.largest = np.where(watched, [dtypes.largest(i.dtype) for i in self.infos], np.nan)
        self.peaks = np.zeros(len(self.infos))
        near = self.largest**NEAR  # NaN is never reached
        self.near_norms, self.near_losses = near[: len(infos)], near[len(infos) :]

    def measured(self, places: Any, largest: Any, norms: Any) -> None:
        """Take note of largest elements beside norms, float64[k] each."""
        known = (largest > 0) & (norms > 0) & np.isfinite(largest) & np.isfinite(norms)
        self.peaks[np.asarray(places)[known]] = np.minimum(0.0, np.log2(largest[known] / norms[known]))


@dataclass(frozen=True)
class _Seen:
    step: int
    limits: Limits
    norms: Any
    codes: Any
    losses: Any


class Lookout:
    """Follows a run step by step until it has given its one warning."""

    def __init__(self) -> None:
        self._seen: deque[_Seen] | None = deque(maxlen=WINDOW)
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
        now = _Seen(step, limits, norms, codes, losses)
        self._seen.append(now)
        near = norms >= limits.near_norms, np.abs(losses) >= limits.near_losses
        if not (near[0].any() or near[1].any()):
            return None
        since = step - self._last
        if since < HURRIED or (since < EVERY and not self._hurries(now, near)):
            return None
        self._last = step
        found = self._look(step, limits)
        if found is None:
            return None
        self._seen = None
        return _sentence(limits.infos[found.row], found)

    def _hurries(self, now: _Seen, near: tuple[Any, Any]) -> bool:
        """Whether one of the numbers that are near may be at its limit soon, at the pace of the last few steps."""
        assert self._seen is not None
        before = self._seen[max(0, len(self._seen) - 1 - PACE)]
        if before.limits is not now.limits:
            return False
        where = np.concatenate(near)
        values = np.abs(np.stack([np.append(now.norms, now.losses), np.append(before.norms, before.losses)]))[:, where]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            height = np.log2(now.limits.largest[where])
            latest, earlier = np.log2(values)
            return bool(np.any((height - latest) * PACE < (latest - earlier) * SOON))

    def _look(self, step: int, limits: Limits) -> Forecast | None:
        assert self._seen is not None
        rows = [seen for seen in self._seen if seen.limits is limits and seen.step > step - WINDOW]
        codes = np.stack([magnitude.encode(seen.norms) if seen.codes is None else seen.codes for seen in rows], axis=1)
        losses = np.minimum(np.abs(np.stack([seen.losses for seen in rows], axis=1)), LARGEST_STORED)
        values = np.concatenate([magnitude.decode(codes), losses])  # as a reader of the file has them
        steps = np.array([seen.step for seen in rows], np.int64)
        return soonest(steps, values, limits.largest, lambda row: float(limits.peaks[row]))


def _sentence(info: TensorInfo, found: Forecast) -> str:
    """One line for the console."""
    what = {"gradient": "the gradient of ", "weight": "the weight ", "activation": "the output of "}.get(info.kind, "")
    name = "the loss" if info.tag == "loss/loss" else f"{what}{info.name.removesuffix('/output')}"
    return (
        f"{name} {found.growth.words()} and reaches the {info.dtype} maximum ({_maximum(info.dtype)}) in "
        f"{found.about()}, near step {found.step:,}"
    )


def _maximum(dtype: str) -> str:
    most = dtypes.largest(dtype)
    return f"{most:,.0f}" if most < 1e6 else f"{most:.1e}".replace("e+", "e")
