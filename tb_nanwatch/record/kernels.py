"""The reductions, as TensorFlow ops.

Two kinds. A *cheap number* of every tensor at every step, which is finite exactly if there is no sign of trouble:
the sum of squares on ordinary kernels; under XLA on a CPU, where reductions run at a quarter of the memory's speed
but matrix products do not, the sum of a product with ones. And *statistics*, nine numbers, taken now and then.

Statistics columns: NORM, MAX_ABS, MEAN (all over finite elements), ZERO and SUBNORMAL share, and the counts
NAN, POS_INF, NEG_INF and SIZE, in elements.
"""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

NORM, MAX_ABS, MEAN, ZERO, SUBNORMAL, NAN, POS_INF, NEG_INF, SIZE = range(9)
COLUMNS: Final = 9

SAMPLE: Final = 1 << 16  # elements from which the two shares are estimated, half of it at least
SHARE_ERROR: Final = 0.0055  # two standard deviations of an estimated share, at worst
SMALL: Final = 4096  # below this many elements a plain reduction is as fast as a product

# bit pattern type, everything but the sign bit, smallest normal number
_BITS: Final[dict[Any, tuple[Any, int, int]]] = {
    tf.float32: (tf.int32, 0x7FFFFFFF, 0x00800000),
    tf.float64: (tf.int64, 0x7FFFFFFFFFFFFFFF, 0x0010000000000000),
    tf.float16: (tf.int16, 0x7FFF, 0x0400),
    tf.bfloat16: (tf.int16, 0x7FFF, 0x0080),
}

FLOATS: Final = tuple(_BITS)


def measurable(value: Any) -> Any | None:
    """The dense floating tensor inside `value` (Tensor, IndexedSlices, Ragged- or SparseTensor), or None."""
    if isinstance(value, tf.RaggedTensor):
        value = value.flat_values
    elif isinstance(value, tf.SparseTensor | tf.IndexedSlices):
        value = value.values
    return value if tf.is_tensor(value) and value.dtype in _BITS else None


def _wide(x: Any) -> Any:
    return x if x.dtype in (tf.float32, tf.float64) else tf.cast(x, tf.float32)


def sum_of_squares(x: Any) -> Any:
    """Sum of squares, a scalar of at least float32. It overflows for norms above 1.8e19: then look closer."""
    return 2 * tf.nn.l2_loss(_wide(x))


def finite_flag(x: Any) -> Any:
    """A scalar that is finite if x is; it may overflow for huge finite x. A product with ones: see above."""
    x = _wide(x)
    size, last = x.shape.num_elements(), x.shape[-1] if x.shape.rank else None
    if (size is not None and size < SMALL) or last is None:
        return tf.reduce_sum(x)
    rows = tf.reshape(x, [-1, last])
    if last >= 64:
        return tf.reduce_sum(tf.matmul(rows, tf.ones([last, 1], x.dtype)))
    return tf.reduce_sum(tf.matmul(tf.ones([1, tf.shape(rows)[0]], x.dtype), rows))


def statistics(x: Any) -> Any:
    """float64[COLUMNS] of a tensor known to be finite, its squares too."""
    wide = _wide(x)
    size = _number(tf.size(x))
    zero, subnormal = _shares(x)
    none = tf.zeros([], tf.float64)
    return tf.stack(
        [
            tf.sqrt(_number(sum_of_squares(x))),
            _number(tf.maximum(tf.reduce_max(wide), -tf.reduce_min(wide))),
            tf.math.divide_no_nan(_number(tf.reduce_sum(wide)), size),
            zero,
            subnormal,
            none,
            none,
            none,
            size,
        ]
    )


def exact_statistics(x: Any) -> Any:
    """float64[COLUMNS] of any tensor: counts exact, the rest over its finite elements, without overflow."""
    wide = _wide(x)
    finite = tf.math.is_finite(wide)
    kept = tf.where(finite, wide, tf.zeros_like(wide))
    largest = tf.reduce_max(tf.concat([tf.reshape(tf.abs(kept), [-1]), tf.zeros([1], wide.dtype)], 0))
    scaled = tf.math.divide_no_nan(kept, largest)
    max_abs = _number(largest)
    zero, subnormal = _shares(x)
    return tf.stack(
        [
            tf.minimum(max_abs * tf.sqrt(_number(tf.reduce_sum(scaled * scaled))), tf.float64.max),
            max_abs,
            max_abs * tf.math.divide_no_nan(_number(tf.reduce_sum(scaled)), _count(finite)),
            zero,
            subnormal,
            *(_count(mask) for mask in _masks(x)),
            _number(tf.size(x)),
        ]
    )


def _masks(x: Any) -> tuple[Any, Any, Any]:
    infinite = tf.math.is_inf(x)
    return tf.math.is_nan(x), infinite & (x > 0), infinite & (x < 0)


def _number(scalar: Any) -> Any:
    """float64: counts above 2**24 stay exact, and the norm of float32 elements near their limit stays finite."""
    return tf.cast(scalar, tf.float64)


def _count(mask: Any) -> Any:
    return _number(tf.math.count_nonzero(mask))


def _shares(x: Any) -> tuple[Any, Any]:
    """Shares of zeros and of subnormals, from bit patterns: CPU kernels flush subnormals before comparing."""
    integers, magnitude, smallest_normal = _BITS[x.dtype]
    bits = tf.bitwise.bitwise_and(tf.bitcast(_sample(tf.reshape(x, [-1])), integers), magnitude)
    size = _number(tf.maximum(tf.size(bits), 1))
    zeros = _count(tf.equal(bits, 0))
    return zeros / size, (_count(bits < smallest_normal) - zeros) / size


def _sample(flat: Any) -> Any:
    """Every n-th element, n odd so that it does not march in step with channels in powers of two."""
    size = flat.shape.num_elements()
    if size is None:
        return flat[:: tf.bitwise.bitwise_or(tf.size(flat) // SAMPLE, 1)]
    return flat if size <= SAMPLE else flat[:: (size // SAMPLE) | 1]
