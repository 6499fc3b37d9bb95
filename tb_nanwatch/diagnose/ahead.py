"""The newest steps of a run, read for what grows in them: every loss, gradient, output and trainable weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.diagnose.window import norms
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.stats.doubling import WINDOW, Doubling, doubling
from tb_nanwatch.store.run import Run

KINDS: Final = ("gradient", "weight", "activation")
CLOSELY: Final = 8  # tensors that are fitted, of those that rose most


@dataclass(frozen=True)
class Newest:
    """The last WINDOW steps after the last incident. steps int64[n]; values float64[m, n], NaN where not measured."""

    infos: tuple[TensorInfo, ...]
    steps: NDArray[np.int64]
    values: NDArray[np.float64]

    def rows(self, *kinds: str) -> NDArray[np.intp]:
        """Rows of the tensors of these kinds."""
        return np.flatnonzero([info.kind in kinds for info in self.infos])


def newest(run: Run) -> Newest | None:
    """None while an incident lasts, and where nothing was measured."""
    if not run.steps or any(not incident.recovered for incident in run.incidents):
        return None
    ended = max((i.last_step for i in run.incidents if i.last_step is not None), default=-1)
    first, last = max(run.first_step, ended + 1, run.last_step - WINDOW + 1), run.last_step
    if last < first:
        return None
    steps = np.arange(first, last + 1, dtype=np.int64)
    infos: list[TensorInfo] = []
    planes: list[NDArray[np.float64]] = []
    for info in run.kind("loss"):
        line = run.series(info.tag, "value", first, last)
        plane = np.full((1, len(steps)), np.nan)
        plane[0, line.steps - first] = np.abs(line.values)
        infos.append(info)
        planes.append(plane)
    for kind in KINDS:
        mine = run.kind(kind)
        chosen = [n for n, info in enumerate(mine) if kind != "weight" or info.trainable]
        if chosen:
            infos += [mine[n] for n in chosen]
            planes.append(norms(run, kind, first, last)[chosen])
    return Newest(tuple(infos), steps, np.concatenate(planes)) if planes else None


def fastest(found: Newest, *kinds: str) -> tuple[TensorInfo, Doubling] | None:
    """Of these kinds, the tensor that grows fastest among those that grow steadily until the last step."""
    rows = found.rows(*kinds)
    usable = np.isfinite(found.values[rows]) & (found.values[rows] > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        octaves = np.log2(np.where(usable, found.values[rows], np.nan))
    lowest = np.where(usable, octaves, np.inf).min(axis=1, initial=np.inf)
    risen = np.where(usable, octaves, -np.inf).max(axis=1, initial=-np.inf) - lowest
    best: tuple[TensorInfo, Doubling] | None = None
    for row in rows[np.argsort(-risen, kind="stable")[:CLOSELY]]:
        growth = doubling(found.steps, found.values[row])
        if growth is None or growth.last_step != found.steps[-1]:
            continue
        if best is None or growth.rate > best[1].rate:
            best = found.infos[row], growth
    return best
