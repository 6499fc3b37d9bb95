"""What the first batches are made of, and which of their columns are unlike the others: by numpy, on the host.

A column is one place of the last dimension: a feature of a table, a channel of a picture. Only what is worth telling
is kept, since a column that is constant or large is mostly nothing odd: pictures have borders, one-hot features zeros.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tb_nanwatch.format.records import BatchPart, Column, FirstBatches

BATCHES: Final = 3
MOST_BYTES: Final = 4 << 20  # of a batch, as float64, which takes some 30 ms at worst
MOST_COLUMNS: Final = 4096
MOST_PARTS: Final = 64
RANKS: Final = (2, 3, 4)

#: Glorot, He and LeCun scale initial weights for columns of one size (LeCun et al., Efficient BackProp, 4.3): a column
#: that is r times larger makes the first layer's curvature r squared times larger in that direction.
FAR: Final = 100.0
RAW: Final = 50.0  # below, an input is near enough to 1 that nothing overflows because of it
FEWEST: Final = 3  # columns that a median is taken of
KEPT: Final = 16

_INTEGERS: Final = (tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64)

ROWS: Final = 32  # in fewer, a column is the same throughout by chance
SPARSE: Final = 0.1  # share of zeros from which on columns of zeros are ordinary


@dataclass
class _Sums:
    """Over the rows so far, each float64[columns]; squares about the mean."""

    rows: int
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    count: NDArray[np.float64]
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    zeros: NDArray[np.float64]

    def joined(self, other: _Sums) -> _Sums:
        """Both together (Chan, Golub and LeVeque's update of the mean and the squares about it)."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        apart = other.mean - self.mean
        return _Sums(
            self.rows + other.rows,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            count,
            self.mean + apart * share,
            self.squares + other.squares + apart**2 * self.count * share,
            self.zeros + other.zeros,
        )


@dataclass
class Watch:
    """Looks at the first batches of a training; `look` gives what there is to write, None once it has seen enough."""

    _seen: int = 0
    _bytes: int = 0
    _sums: dict[str, _Sums] = field(default_factory=dict)
    _told: tuple[BatchPart, ...] | None = None

    @property
    def done(self) -> bool:
        """Whether further batches are of no interest."""
        return self._seen >= BATCHES

    def look(self, step: int, leaves: Iterable[tuple[str, Any]], mapping: bool = False) -> FirstBatches | None:
        """Take in the batch of a step, as (name, value) of its parts; None where it tells nothing new.

        mapping: the batch is a dict.
        """
        self._seen, self._bytes = self._seen + 1, 0
        tensors = [(n, v) for n, v in leaves if hasattr(v, "dtype") and hasattr(v, "shape")][:MOST_PARTS]
        parts = tuple(self._part(name, value) for name, value in tensors)
        news = self._told is None or any(p.extreme or p.constant for p in (*parts, *self._told))
        self._told = parts
        return FirstBatches(step, self._seen, parts, mapping) if news and parts else None

    def _part(self, name: str, value: Any) -> BatchPart:
        dtype, shape = str(getattr(value.dtype, "name", value.dtype)), _shape(value)
        array = self._array(value, shape)
        if array is not None:
            self._bytes += 8 * array.size
            new = _sums(array)
            known = self._sums.get(name)
            self._sums[name] = new if known is None or known.low.shape != new.low.shape else known.joined(new)
        sums = self._sums.get(name)
        return BatchPart(name, dtype, shape) if sums is None else _told(name, dtype, shape, sums)

    def _array(self, value: Any, shape: tuple[int, ...] | None) -> NDArray[Any] | None:
        """The rows of a dense numeric part, as many as fit; None for what has no columns."""
        if shape is None or not _is_numeric(value):
            return None
        if len(shape) not in RANKS or not 2 <= shape[-1] <= MOST_COLUMNS or not math.prod(shape):
            return None
        fit = max(0, MOST_BYTES - self._bytes) // (8 * math.prod(shape[1:]))
        array = np.asarray(value[:fit] if fit < shape[0] else value).reshape(-1, shape[-1]) if fit else None
        return array if array is None or array.dtype.kind in "fiu" else array.astype(np.float32)


def _is_numeric(value: Any) -> bool:
    """Whether a part is a dense array of numbers on this host or its device."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "fiu"
    there = isinstance(value, tf.Tensor) and hasattr(value, "numpy")
    return there and (value.dtype.is_floating or value.dtype in _INTEGERS)


def _shape(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, np.ndarray | np.generic):
        return tuple(int(size) for size in value.shape)
    return None if value.shape.rank is None else tuple(-1 if size is None else int(size) for size in value.shape)


def _sums(array: NDArray[Any]) -> _Sums:
    finite = np.isfinite(array) if array.dtype.kind == "f" else np.ones(array.shape, np.bool_)
    count = finite.sum(axis=0).astype(np.float64)
    whole = bool(finite.all())
    known = array if whole else np.where(finite, array, 0)
    mean = known.sum(axis=0, dtype=np.float64) / np.maximum(count, 1)
    apart = np.where(finite, known - mean, 0) if not whole else known - mean
    return _Sums(
        len(array),
        np.asarray((known if whole else np.where(finite, array, np.inf)).min(axis=0), np.float64),
        np.asarray((known if whole else np.where(finite, array, -np.inf)).max(axis=0), np.float64),
        count,
        mean,
        np.einsum("ij,ij->j", apart, apart),
        (known == 0).sum(axis=0).astype(np.float64),
    )


def _told(name: str, dtype: str, shape: tuple[int, ...] | None, sums: _Sums) -> BatchPart:
    known = sums.count > 0
    reach = np.where(known, np.maximum(np.abs(sums.low), np.abs(sums.high)), 0.0)
    typical, far = far_columns(reach)
    extreme = sorted(np.flatnonzero(far).tolist(), key=lambda column: -reach[column])
    constant = np.flatnonzero(_constant(sums, known)).tolist() if "float" in dtype else []
    return BatchPart(
        name,
        dtype,
        shape,
        sums.rows,
        len(reach),
        typical,
        _columns(sums, extreme[:KEPT]),
        _columns(sums, constant[:KEPT]),
        len(extreme),
        len(constant),
    )


def far_columns(reach: NDArray[np.float64]) -> tuple[float, NDArray[np.bool_]]:
    """(the typical one, which are far larger) of the largest magnitudes of columns, float64[columns]; 0 for too few."""
    alive = reach[reach > 0]
    typical = float(np.median(alive)) if len(alive) >= FEWEST else 0.0
    return typical, (reach >= FAR * typical) & (reach >= RAW) & (typical > 0)


def _constant(sums: _Sums, known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Columns that never change, while most others do."""
    same = known & (sums.low == sums.high) & (sums.count >= ROWS)
    others = sums.rows * max(int((~same).sum()), 1)
    if float(sums.zeros[~same].sum()) / others >= SPARSE:
        same &= sums.low != 0
    return same if same.sum() <= len(same) // 4 else np.zeros(len(same), np.bool_)


def _columns(sums: _Sums, indices: Sequence[int]) -> tuple[Column, ...]:
    deviation = np.sqrt(sums.squares / np.maximum(sums.count, 1))
    return tuple(
        Column(i, float(sums.low[i]), float(sums.high[i]), float(sums.mean[i]), float(deviation[i])) for i in indices
    )
