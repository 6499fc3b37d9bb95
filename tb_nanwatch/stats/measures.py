"""What is measured of a tensor, in numpy: the reference of every statistic, and the kernel for arrays in host memory.

Columns of `statistics` and `exact_statistics`: NORM (L2), MAX_ABS and MEAN over the finite elements, the shares of
ZERO and SUBNORMAL elements, and the counts NAN, POS_INF, NEG_INF and SIZE.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

NORM, MAX_ABS, MEAN, ZERO, SUBNORMAL, NAN, POS_INF, NEG_INF, SIZE = range(9)
COLUMNS: Final = 9

SAMPLE: Final = 1 << 16  # elements from which mean and shares are estimated, half of it at least
SHARE_ERROR: Final = 0.0055  # two standard deviations of an estimated share, at worst
PIECE: Final = 1 << 16  # elements
FRACTION_BITS: Final = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}
TINY_SQUARES: Final = 1e-30  # sums of squares below this have lost digits to underflow in float32


def wide(array: Any) -> NDArray[Any]:
    """The array flat, as float32 or float64; half types become float32."""
    flat = np.asarray(array).reshape(-1)
    return flat if flat.dtype in (np.float32, np.float64) else flat.astype(np.float32)


def sum_of_squares(array: Any) -> float:
    """Sum of squares in the precision of the array (at least float32); it may overflow: then look closer."""
    flat = wide(array)
    return float(flat.dot(flat))


def statistics(array: Any, squares: float) -> NDArray[np.float64]:
    """float64[COLUMNS] of an array known to be finite with finite `squares`, their sum."""
    flat = wide(array)
    if not flat.size:
        return np.zeros(COLUMNS)
    # Piece by piece, so that the second look at a piece finds it in the cache.
    largest = max(max(piece.max(), -piece.min()) for piece in pieces(flat))
    norm = np.sqrt(squares)
    if squares < TINY_SQUARES and largest > 0:
        norm = largest * np.linalg.norm(flat / largest)
    every = max(flat.size // SAMPLE, 1) | 1
    zero, subnormal = _shares(np.asarray(array).reshape(-1)[::every])
    return np.array([norm, largest, flat[::every].mean(dtype=np.float64), zero, subnormal, 0, 0, 0, flat.size])


def pieces(flat: NDArray[Any]) -> list[NDArray[Any]]:
    """Views of a flat array, each small enough for a processor's cache."""
    return [flat[i : i + PIECE] for i in range(0, flat.size, PIECE)]


def exact_statistics(array: Any) -> NDArray[np.float64]:
    """float64[COLUMNS] of any array: counts exact, the rest over its finite elements, computed in float64."""
    flat = wide(array)
    kept = flat[np.isfinite(flat)].astype(np.float64)
    largest = float(np.abs(kept).max(initial=0))
    zero, subnormal = _shares(np.asarray(array).reshape(-1))
    scaled = kept / largest if largest else kept
    return np.array(
        [
            min(largest * np.linalg.norm(scaled), np.finfo(np.float64).max),
            largest,
            largest * scaled.mean() if kept.size else 0.0,
            zero,
            subnormal,
            np.isnan(flat).sum(),
            np.isposinf(flat).sum(),
            np.isneginf(flat).sum(),
            flat.size,
        ]
    )


def _shares(flat: NDArray[Any]) -> tuple[float, float]:
    """Shares of zeros and of subnormals, from bit patterns, whatever the processor does with subnormals."""
    if not flat.size:
        return 0.0, 0.0
    width, fraction = 8 * flat.dtype.itemsize, FRACTION_BITS[flat.dtype.name]
    bits = np.ascontiguousarray(flat).view(f"i{flat.dtype.itemsize}") & (2 ** (width - 1) - 1)
    zeros = np.count_nonzero(bits == 0)
    below = np.count_nonzero(bits < (1 << fraction))
    return zeros / flat.size, (below - zeros) / flat.size
