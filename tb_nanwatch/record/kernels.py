"""The reductions, as TensorFlow ops.

Two kinds. A *cheap number* of every tensor at every step, which is finite exactly if there is no sign of trouble:
the sum of squares on ordinary kernels; under XLA on a CPU, where reductions run at a quarter of the memory's speed
but matrix products do not, the sum of a product with ones. And *statistics*, nine numbers, taken now and then.

The columns of the statistics are those of `stats.measures`, which says in numpy what each of them is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import tensorflow as tf

from tb_nanwatch.record import own
from tb_nanwatch.stats.measures import SAMPLE, TINY_SQUARES

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
    # tf.is_tensor takes the placeholders for tensors, too, from which Keras builds models.
    return value if isinstance(value, tf.Tensor | tf.Variable) and value.dtype in _BITS else None


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


def statistics(x: Any, squares: Any = None) -> Any:
    """float64[COLUMNS] of a tensor known to be finite; `squares` is the sum of its squares where it is known.

    Two passes over the tensor; the mean and the shares come from SAMPLE elements if there are more.
    """
    squares = sum_of_squares(x) if squares is None else squares
    return _traced_once("statistics", _statistics, x.dtype, 1)(tf.reshape(x, [-1]), _number(squares))


def exact_statistics(x: Any) -> Any:
    """float64[COLUMNS] of any tensor: counts exact, the rest over its finite elements, without overflow."""
    return _traced_once("exact", _exact_statistics, x.dtype, 0)(tf.reshape(x, [-1]))


_traced: dict[Any, Any] = {}


def _traced_once(name: str, kernel: Callable[..., Any], dtype: Any, numbers: int) -> Any:
    """The kernel as a tf.function of a flat tensor: a step with hundreds of tensors is then traced in seconds."""
    if (name, dtype) not in _traced:
        signature = [tf.TensorSpec([None], dtype)] + [tf.TensorSpec([], tf.float64)] * numbers
        _traced[name, dtype] = own.function(kernel, input_signature=signature)
    return _traced[name, dtype]


def _statistics(flat: Any, squares: Any) -> Any:
    values = _wide(flat)
    sample = _sample(flat)
    largest = tf.maximum(tf.maximum(tf.reduce_max(values), -tf.reduce_min(values)), 0)  # of an empty one, too
    zero, subnormal = _shares(sample)
    none = tf.zeros([], tf.float64)
    in_sample, size = _number(tf.maximum(tf.size(sample), 1)), _number(tf.size(flat))
    scaled = tf.math.divide_no_nan(_wide(sample), largest)
    from_sample = _number(largest) * tf.sqrt(_number(tf.reduce_sum(scaled * scaled)) * size / in_sample)
    return tf.stack(
        [
            tf.where((squares < TINY_SQUARES) | ~tf.math.is_finite(squares), from_sample, tf.sqrt(squares)),
            _number(largest),
            _number(tf.reduce_sum(_wide(sample))) / in_sample,
            zero,
            subnormal,
            none,
            none,
            none,
            size,
        ]
    )


def _exact_statistics(flat: Any) -> Any:
    values = _wide(flat)
    finite = tf.math.is_finite(values)
    kept = tf.where(finite, values, tf.zeros_like(values))
    largest = tf.reduce_max(tf.concat([tf.abs(kept), tf.zeros([1], values.dtype)], 0))
    scaled = tf.math.divide_no_nan(kept, largest)
    max_abs = _number(largest)
    zero, subnormal = _shares(flat)
    return tf.stack(
        [
            tf.minimum(max_abs * tf.sqrt(_number(tf.reduce_sum(scaled * scaled))), tf.float64.max),
            max_abs,
            max_abs * tf.math.divide_no_nan(_number(tf.reduce_sum(scaled)), _count(finite)),
            zero,
            subnormal,
            *(_count(mask) for mask in _masks(flat)),
            _number(tf.size(flat)),
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


def _shares(flat: Any) -> tuple[Any, Any]:
    """Shares of zeros and of subnormals, from bit patterns: CPU kernels flush subnormals before comparing."""
    integers, magnitude, smallest_normal = _BITS[flat.dtype]
    bits = tf.bitwise.bitwise_and(tf.bitcast(flat, integers), magnitude)
    size = _number(tf.maximum(tf.size(bits), 1))
    zeros = _count(tf.equal(bits, 0))
    return zeros / size, (_count(bits < smallest_normal) - zeros) / size


def _sample(flat: Any) -> Any:
    """Every n-th element, n odd so that it does not march in step with channels in powers of two."""
    return flat[:: tf.bitwise.bitwise_or(tf.size(flat) // SAMPLE, 1)]
