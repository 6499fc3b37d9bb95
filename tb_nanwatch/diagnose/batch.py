"""The batch of the bad step beside the batches before it: what in the data was unlike the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.format.records import Incident
from tb_nanwatch.store.run import Run

WINDOW: Final = 256  # steps before that are compared with
FEWEST: Final = 3


@dataclass(frozen=True)
class Batch:
    """One tensor of the bad step's batch.

    jump: its norm over the median norm before, None with too few batches to compare. largest: the largest magnitude
    at the bad step, or the latest known before. new_zeros: whether it holds zeros and no batch before did.
    """

    name: str
    largest: float
    typical: float
    jump: float | None
    new_zeros: bool

    @property
    def label(self) -> bool:
        """Whether it goes by the name of a target."""
        return is_label(self.name)


def is_label(name: str) -> bool:
    """Whether a part of a batch goes by the name of a target."""
    return name.partition("/")[0] in ("y", "labels", "label", "targets", "target", "y_true")


def batches(run: Run, incident: Incident) -> tuple[Batch, ...]:
    """Every recorded tensor of the batch at the incident's first step."""
    return tuple(_batch(run, info.tag, info.name, incident.first_step) for info in run.kind("input"))


def _batch(run: Run, tag: str, name: str, step: int) -> Batch:
    first = max(0, step - WINDOW)
    norms = run.series(tag, "norm", first, step)
    finite = np.isfinite(norms.values)
    before = norms.values[finite & (norms.steps < step) & (norms.values > 0)]
    now = norms.values[finite & (norms.steps == step)]
    jump = float(now[0] / np.median(before)) if len(before) >= FEWEST and len(now) else None
    sizes = run.series(tag, "max_abs", first, step)
    known = sizes.values[np.isfinite(sizes.values)]
    earlier = sizes.values[np.isfinite(sizes.values) & (sizes.steps < step)]
    zeros = run.series(tag, "zero_share", first, step)
    now_zero = bool((zeros.values[zeros.steps == step] > 0).any())
    past = zeros.values[zeros.steps < step]
    return Batch(
        name=name,
        largest=float(known[-1]) if len(known) else 0.0,
        typical=float(np.median(earlier)) if len(earlier) else 0.0,
        jump=jump,
        new_zeros=now_zero and len(past) > 0 and not (past > 0).any(),
    )


def told(batch: Batch) -> str:
    """The tensor in words: "the input x"."""
    return words.place("input", batch.name)
