"""A loss or weights that double again and again, far above where they began, though their dtype is not yet in sight.

TheDeepChecker blames weights that double within five steps and weights of 1e8, AutoTrainer a loss of 1e3. Either alone
would blame healthy runs, whose biases start at zero and whose losses may have any scale: so the growth must be steady
(`stats.doubling`: a straight line of logarithms over at least 4 octaves, still going on), be a thousand times the run's
own beginning, and a loss must also be beyond 1e3. Where the overflow can be foreseen, the forecast says all this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.ahead import Newest, fastest, newest
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.diagnose.rules.forecast import forecast
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.stats.doubling import FEWEST_OCTAVES, Doubling, doubling
from tb_nanwatch.store.run import Run

TIMES: Final = 1000.0  # the run's own beginning
LOSS: Final = 1e3
BEGINNING: Final = 10  # steps
CLOSELY: Final = 8  # tensors that are fitted


def growth(run: Run) -> Iterable[Finding]:
    """At most one finding, on the loss or weight that grew most over its beginning."""
    found = newest(run)
    if found is None or any(forecast(run)):
        return
    grown = max(_grown(run, found), key=lambda g: g[2], default=None)
    if grown is None:
        return
    info, line, times = grown
    name, many = words.place(info.kind, info.name), info.kind == "weight"
    evidence = [
        (
            f"{name} {line.words('grow' if many else 'grows', 'double' if many else 'doubles')}, from step "
            f"{line.first_step:,} on, and {'are' if many else 'is'} {words.magnitude(times)} times where the run began"
        )
    ]
    leader = fastest(found, "weight")
    if leader is not None and leader[0].tag != info.tag:
        evidence.append(
            f"of the weights, {words.printable(leader[0].name)} lead: {leader[1].words('growing', 'doubling')}"
        )
    remedies = ("lower_learning_rate", "clip_gradients")
    yield Finding("growth", "warning", info.name, line.first_step, line.last_step, tuple(evidence), remedies, info.kind)


def _grown(run: Run, found: Newest) -> Iterable[tuple[TensorInfo, Doubling, float]]:
    """Tensors that grow steadily until the last step, and how many times their beginning they are."""
    rows = [n for n, info in enumerate(found.infos) if info.kind == "loss" or (info.kind == "weight" and _matrix(info))]
    with np.errstate(invalid="ignore", divide="ignore"):
        octaves = np.log2(np.where(np.isfinite(found.values[rows]), found.values[rows], np.nan))
    risen = np.nan_to_num(octaves[:, -1] - np.fmin.reduce(octaves, axis=1, initial=np.inf), nan=0.0, neginf=0.0)
    for place in np.argsort(-risen, kind="stable")[:CLOSELY]:
        if risen[place] < FEWEST_OCTAVES / 2:
            continue
        info, values = found.infos[rows[place]], found.values[rows[place]]
        line = doubling(found.steps, values)
        if line is None or line.last_step != found.steps[-1] or (info.kind == "loss" and values[-1] < LOSS):
            continue
        stat = "value" if info.kind == "loss" else "norm"
        first = np.abs(run.series(info.tag, stat, run.first_step, run.first_step + BEGINNING - 1).values)
        first = first[np.isfinite(first) & (first > 0)]
        if len(first) and values[-1] >= TIMES * first[0]:
            yield info, line, float(values[-1] / first[0])


def _matrix(info: TensorInfo) -> bool:
    """Whether a weight has a size from the beginning; biases and scales may start at zero."""
    return info.trainable and info.shape is not None and len(info.shape) > 1
