"""Numbers that grow so steadily that the step can be foreseen at which their dtype no longer holds them.

No peer foretells an overflow (TransformerEngine shows a dynamic range, nobody draws the line on); TheDeepChecker warns
of a doubling within five steps and of weights beyond 1e8, whatever comes of it. What is steady, near and worth a
warning is in `stats.doubling` and `stats.overflow`, which the recorder shares: at least 4 octaves on a straight line of
logarithms, a third of the way to the dtype's maximum, and no further ahead than twice the stretch that was seen.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.ahead import Newest, fastest, newest
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.stats.dtypes import largest
from tb_nanwatch.stats.overflow import Forecast, soonest
from tb_nanwatch.store.run import Run


def forecast(run: Run) -> Iterable[Finding]:
    """At most one finding, on the tensor that overflows first."""
    found = newest(run)
    if found is None:
        return
    ahead = soonest(
        found.steps,
        found.values,
        np.array([largest(info.dtype) for info in found.infos]),
        lambda row: _peak(run, found.infos[row], int(found.steps[0])),
    )
    if ahead is None:
        return
    info = found.infos[ahead.row]
    half = info.dtype == "float16"
    yield Finding(
        rule="forecast",
        severity="warning",
        tensor=info.name,
        first_step=ahead.growth.first_step,
        last_step=ahead.growth.last_step,
        evidence=tuple(_evidence(run, info, ahead, found)),
        remedies=("lower_learning_rate", "clip_gradients", *(("mixed_precision_policy",) if half else ())),
        kind=info.kind,
    )


def _evidence(run: Run, info: TensorInfo, ahead: Forecast, found: Newest) -> Iterable[str]:
    growth = ahead.growth
    maximum = f"the {info.dtype} maximum ({words.magnitude(largest(info.dtype))})"
    name = words.place(info.kind, info.name, info.layer)
    many = info.kind == "weight"
    if run.ended:
        yield f"{name} {'were' if many else 'was'} {ahead.about()} from {maximum} when the run ended"
    else:
        yield f"{name} {'reach' if many else 'reaches'} {maximum} in {ahead.about()}, near step {ahead.step:,}"
    now = float(found.values[ahead.row][found.steps == growth.last_step][0])
    yield (
        f"from step {growth.first_step:,} to step {growth.last_step:,} {'they' if many else 'it'} "
        f"{growth.words('grew', 'doubled')}, up to {words.magnitude(now)}"
    )
    leader = fastest(found, "weight")
    if leader is not None and leader[0].tag != info.tag:
        told = words.place("weight", leader[0].name)
        yield f"of the weights, {told.removeprefix('the weights ')} lead: {leader[1].words('growing', 'doubling')}"


def _peak(run: Run, info: TensorInfo, first: int) -> float:
    """log2 of largest element over norm, where both were last measured; 0 where they were not."""
    if info.kind == "loss":
        return 0.0
    most, norm = run.series(info.tag, "max_abs", first), run.series(info.tag, "norm", first)
    _, mine, others = np.intersect1d(most.steps, norm.steps, assume_unique=True, return_indices=True)
    above, below = most.values[mine], norm.values[others]
    known = np.isfinite(above) & np.isfinite(below) & (above > 0) & (below > 0)
    return min(0.0, float(np.log2(above[known][-1] / below[known][-1]))) if known.any() else 0.0
