"""Where in a batch the elements lie that are not finite: in which samples, and at which place of a sample."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def bad_samples(array: NDArray[Any], most: int) -> list[int]:
    """Indices along the first axis under which something is not finite; empty for a scalar."""
    if array.ndim == 0:
        return []
    bad = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1) if array.size else np.zeros(0, bool)
    return [int(n) for n in np.flatnonzero(bad)[:most]]


def bad_features(array: NDArray[Any], most: int) -> list[list[int]]:
    """Indices within a sample, its columns or pixels, that are not finite in any sample; empty for up to one axis."""
    if array.ndim < 2:
        return []
    bad = (~np.isfinite(array)).any(axis=0)
    return [[int(n) for n in place] for place in np.argwhere(bad)[:most]]
