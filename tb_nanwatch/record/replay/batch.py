"""A batch taken apart into plain arrays, and put together again in another process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tb_nanwatch.errors import CorruptData, NanWatchError
from tb_nanwatch.format import arrays as arrays_module
from tb_nanwatch.format.capsule import Part

Read = Callable[[str, str, tuple[int, ...]], NDArray[Any]]


class Apart:
    """Takes batches apart: `arrays` gathers the arrays by the names that the parts use, `left_out` what it cannot."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self.left_out: list[str] = []

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(a.nbytes for a in self.arrays.values())

    def part(self, value: Any, name: str = "", names: Iterable[str] = ()) -> Part:
        """The Part for a value; `names` are those of its own parts where it is a tuple or a list."""
        if isinstance(value, tf.experimental.Optional):  # Keras's way to say that a part is absent
            value = None
        if value is None:
            return Part("none", name)
        if isinstance(value, dict):
            if not all(isinstance(key, str | int) for key in value):
                return self._missing(value, name)
            items = tuple(self.part(item, f"{name}/{key}" if name else str(key)) for key, item in value.items())
            return Part("dict", name, items, tuple(value))
        if isinstance(value, tuple | list):
            own = list(names)
            labels = [*own, *(f"{name}/{n}" if name else str(n) for n in range(len(own), len(value)))]
            items = tuple(self.part(item, label) for item, label in zip(value, labels, strict=False))
            return Part("list" if isinstance(value, list) else "tuple", name, items)
        return self._leaf(value, name)

    def _leaf(self, value: Any, name: str) -> Part:
        if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
            return Part("value", name, value=value)
        if isinstance(value, tf.RaggedTensor):
            parts = [value.flat_values, *value.nested_row_splits]
            return self._whole("ragged", name, parts, tuple(-1 if d is None else d for d in value.shape))
        if isinstance(value, tf.SparseTensor):
            return self._whole("sparse", name, [value.indices, value.values, value.dense_shape], tuple(value.shape))
        if isinstance(value, np.ndarray | np.generic | float) or (tf.is_tensor(value) and hasattr(value, "numpy")):
            return self._array(value, name)
        return self._missing(value, name)

    def _whole(self, kind: str, name: str, parts: list[Any], shape: tuple[int, ...]) -> Part:
        items = tuple(self._array(part, name) for part in parts)
        if any(item.kind == "left_out" for item in items):
            return Part("left_out", name, value=kind)
        return Part(kind, name, items, shape=tuple(max(d, 0) for d in shape))

    def _array(self, value: Any, name: str) -> Part:
        tensor = tf.is_tensor(value)
        if tensor and value.dtype == tf.string:
            return self._strings(np.asarray(value), name)
        array = np.asarray(value)
        try:
            bits = arrays_module.to_bits(array)
        except TypeError:
            return self._missing(value, name)
        key = self._keep(bits)
        return Part("array", name, arrays=(key,), dtype=array.dtype.name, shape=array.shape, tensor=tensor)

    def _strings(self, array: NDArray[Any], name: str) -> Part:
        texts = [bytes(text) for text in array.reshape(-1)]
        keys = (
            self._keep(np.frombuffer(b"".join(texts), np.uint8)),
            self._keep(np.array([len(text) for text in texts], np.int64)),
        )
        return Part("strings", name, arrays=keys, dtype="string", shape=array.shape)

    def _keep(self, array: NDArray[Any]) -> str:
        key = f"a{len(self.arrays)}"
        self.arrays[key] = array
        return key

    def _missing(self, value: Any, name: str) -> Part:
        what = type(value).__name__
        self.left_out.append(f"{name or 'a part'} of the batch, a {what}: it cannot be kept as arrays")
        return Part("left_out", name, value=what)


def together(part: Part, read: Read) -> Any:
    """The batch again. Raises NanWatchError where a part was left out, CorruptData where arrays do not fit together."""
    if part.kind == "dict":
        return {key: together(item, read) for key, item in zip(part.keys, part.items, strict=True)}
    if part.kind in ("tuple", "list"):
        items = [together(item, read) for item in part.items]
        return items if part.kind == "list" else tuple(items)
    if part.kind == "left_out":
        raise NanWatchError(
            f"{part.name or 'a part'} of the batch ({part.value}) is not in this capsule: the step cannot run without"
        )
    try:
        return _leaf(part, read)
    except (ValueError, TypeError, tf.errors.OpError) as error:
        raise CorruptData(f"{part.name} of the batch does not fit together: {str(error)[:200]}") from error


def _leaf(part: Part, read: Read) -> Any:
    if part.kind == "array":
        array = numpy_of(read(part.arrays[0], part.dtype, part.shape), part.dtype)
        return tf.constant(array) if part.tensor else np.array(array)
    if part.kind == "strings":
        return tf.constant(strings(part, read), tf.string, part.shape)
    if part.kind == "ragged":
        values, *splits = (_leaf(item, read) for item in part.items)
        return tf.RaggedTensor.from_nested_row_splits(values, splits, validate=True)
    if part.kind == "sparse":
        return tf.SparseTensor(*(_leaf(item, read) for item in part.items))
    return None if part.kind == "none" else part.value


def strings(part: Part, read: Read) -> list[bytes]:
    """Texts of a part of kind strings, flat."""
    count = math.prod(part.shape)
    lengths = read(part.arrays[1], "int64", (count,))
    total = int(lengths.sum()) if count else 0
    if count and int(lengths.min()) < 0:
        raise ValueError("a text of negative length")
    data = read(part.arrays[0], "uint8", (total,)).tobytes()
    ends = np.cumsum(lengths).tolist()
    return [data[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)]


def numpy_of(bits: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Bits as an array of a TensorFlow dtype. Raises TypeError for a name that TensorFlow does not know."""
    return bits if bits.dtype.name == dtype else bits.view(tf.as_dtype(dtype).as_numpy_dtype)
