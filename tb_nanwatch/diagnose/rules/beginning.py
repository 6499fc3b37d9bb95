"""What is known of the first step of a training, which shows how the weights were drawn."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.store.run import Run

PRECISION: Final = 0.02  # relative, of squares of norms, and of means, as they are stored


def at_beginning(run: Run) -> bool:
    """Whether step 0 was recorded, and the optimizer had done nothing before it where it counts."""
    if run.steps == 0 or run.first_step != 0:
        return False
    losses = run.kind("loss")
    done = run.series(losses[0].tag, "value", 0, 0).iterations if losses else np.zeros(0, np.int64)
    return not len(done) or int(done[0]) <= 1


def norm_at(run: Run, tag: str, step: int) -> float:
    """Norm of a tensor at a step, NaN where it was not measured."""
    values = run.series(tag, "norm", step, step).values
    return float(values[0]) if len(values) else float("nan")


def constant(run: Run, info: TensorInfo) -> float | None:
    """The one value of all elements of a weight when training began, as well as it can be told; None where they differ.

    Weights are measured after the first update, whose norm is known: what of their spread is more was there before.
    """
    weight, update = norm_at(run, f"weight/{info.name}", 0), norm_at(run, f"update/{info.name}", 0)
    if weight == 0 or (
        weight > 0 and abs(weight - update) <= PRECISION / 2 * weight and _puts_out_one_value(run, info)
    ):
        return 0.0  # all that it has came with the update, and the step's outputs do not depend on the data
    size = int(np.prod(info.shape or (0,), dtype=np.int64))
    means = run.series(f"weight/{info.name}", "mean", 0, 0).values
    if not len(means) or not size or not np.isfinite([weight, update, means[0]]).all() or means[0] == 0:
        return None
    mean = float(means[0])
    spread = weight**2 / size - mean**2  # of one value: zero, as exactly as both are stored; never far below
    allowed = (update / np.sqrt(size)) ** 2 + PRECISION * mean**2
    return mean if abs(spread) <= allowed and update < abs(weight) / 4 else None


def _puts_out_one_value(run: Run, info: TensorInfo) -> bool:
    """Whether all outputs of a weight's layer were equal at step 0, as they are behind a matrix of zeros."""
    output = next((o for o in run.kind("activation") if o.layer == info.layer), None)
    if output is None:
        return False
    norm = norm_at(run, output.tag, 0)
    if norm == 0:
        return True
    largest, means = (run.series(output.tag, stat, 0, 0).values for stat in ("max_abs", "mean"))
    size = int(np.prod(output.shape or (0,), dtype=np.int64))
    if not len(largest) or not len(means) or size <= 0:
        return False
    mean = abs(float(means[0]))
    return bool(np.allclose([largest[0], norm / np.sqrt(size)], mean, rtol=PRECISION))
