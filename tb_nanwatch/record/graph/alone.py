"""Which samples of a batch fail alone: an op in a loop, or behind a sum, does not say whose values it took."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tb_nanwatch.record.graph import trials
from tb_nanwatch.record.replay.trials import MOST_SAMPLES


def bad_samples(
    session: Any, graph: Any, feeds: Mapping[str, Any], ends: Sequence[Any], until: float
) -> tuple[int, ...]:
    """Samples for which a loss or gradient, of `ends`, is bad when all of the batch are this one.

    The session holds the variables as they were before the step, and keeps them. None are told where all fail, where
    the arrays of `feeds`, by the tensors' names, do not agree on a number of samples, and after `until`, a time of
    monotonic(). Raises OpError.
    """
    given = {name: np.asarray(value) for name, value in feeds.items()}
    sizes = {len(array) for array in given.values() if array.ndim}
    size = sizes.pop() if len(sizes) == 1 else 0
    bad = []
    for sample in range(size) if 1 < size <= MOST_SAMPLES else ():
        if time.monotonic() > until:
            return ()
        same = {n: np.repeat(a[sample : sample + 1], size, axis=0) if a.ndim else a for n, a in given.items()}
        got = session.run(list(ends), {graph.get_tensor_by_name(n): a for n, a in same.items()})
        if not trials.finite([getattr(value, "values", value) for value in got]):
            bad.append(sample)
    return tuple(bad) if len(bad) < size else ()
