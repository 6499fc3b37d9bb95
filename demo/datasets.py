"""Small real data sets that scikit-learn ships, scaled and shuffled the same way every time.

Arrays are float32 (labels int32), rows first. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import sklearn.datasets
from numpy.typing import NDArray

Array = NDArray[Any]


def digits() -> tuple[Array, Array]:
    """1,797 handwritten digits: images [n, 8, 8, 1] between 0 and 1, labels [n] 0..9."""
    data = sklearn.datasets.load_digits()
    return _shuffle(data.images[..., None].astype(np.float32) / 16, data.target.astype(np.int32))


def diabetes() -> tuple[Array, Array]:
    """442 patients: features [n, 10] and progression after a year [n, 1], both with mean 0 and deviation 1."""
    data = sklearn.datasets.load_diabetes()
    return _shuffle(_standardize(data.data), _standardize(data.target[:, None]))


def wine() -> tuple[Array, Array]:
    """178 wines: chemical analysis [n, 13] with mean 0 and deviation 1, cultivar [n] 0..2."""
    data = sklearn.datasets.load_wine()
    return _shuffle(_standardize(data.data), data.target.astype(np.int32))


def batches(x: Array, y: Array, size: int, steps: int) -> Iterator[tuple[Array, Array]]:
    """`steps` batches of `size` rows, in order, again from the start when the rows are used up."""
    for step in range(steps):
        rows = np.arange(step * size, (step + 1) * size) % len(x)
        yield x[rows], y[rows]


def _standardize(values: Array) -> Array:
    return ((values - values.mean(axis=0)) / values.std(axis=0)).astype(np.float32)


def _shuffle(x: Array, y: Array) -> tuple[Array, Array]:
    order = np.random.default_rng(0).permutation(len(x))
    return x[order], y[order]
