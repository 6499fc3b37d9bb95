"""How columns of numbers become bytes, and back.

A plane is a [steps, tensors] array of uint16. Neighbouring steps resemble each other, so each column is
replaced by its differences in time (modulo 2**16, folded so that small steps of either sign are small
numbers), the low and the high bytes are laid apart, and zlib does the rest: real runs take about one byte
a value. A value that was not measured (code 0) would break the differences; it is filled with the value before
it, and a bit mask says where.

Bytes from disk are untrusted: every decoder is told the size to expect, and raises CorruptData otherwise.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.errors import CorruptData

LEVEL: Final = 3
MAX_VALUES: Final = 1 << 26  # a plane of more values than this is taken for damage

Plane = NDArray[np.uint16]


def deflate(array: NDArray[Any]) -> bytes:
    """The array's bytes in C order, zlib-compressed."""
    return zlib.compress(np.ascontiguousarray(array).tobytes(), LEVEL)


def inflate(data: bytes, size: int) -> bytes:
    """Exactly `size` bytes out of zlib data. Raises CorruptData where it holds fewer, more or nonsense."""
    if size > 8 * MAX_VALUES:
        raise CorruptData(f"a column claims {size} bytes, more than any recorder writes")
    stream = zlib.decompressobj()
    try:
        out = stream.decompress(data, size + 1)
    except zlib.error as error:
        raise CorruptData(f"a compressed column does not decompress: {error}") from error
    if len(out) != size or not stream.eof:
        raise CorruptData(f"a compressed column holds {len(out)} bytes where {size} were announced")
    return out


def pack(plane: Plane) -> bytes:
    """Bytes of a [steps, tensors] plane of uint16, at least one step."""
    plane = np.ascontiguousarray(plane, dtype=np.uint16)
    missing = plane == 0
    gaps = bool(missing.any())
    if gaps:
        plane = _carry_forward(plane, missing)
    moved = plane.copy()
    moved[1:] -= plane[:-1]
    signed = moved[1:].view(np.int16)
    moved[1:] = ((signed << 1) ^ (signed >> 15)).view(np.uint16)
    halves = np.concatenate([(moved & 255).astype(np.uint8).ravel(), (moved >> 8).astype(np.uint8).ravel()])
    mask = deflate(np.packbits(missing)) if gaps else b""
    return len(mask).to_bytes(4, "little") + mask + deflate(halves)


def unpack(data: bytes, steps: int, tensors: int) -> Plane:
    """The plane that `pack` was given. Raises CorruptData."""
    count = steps * tensors
    if count > MAX_VALUES:
        raise CorruptData(f"a block claims {steps} steps of {tensors} tensors, more than any recorder writes")
    if len(data) < 4:
        raise CorruptData("a packed plane is shorter than its header")
    mask_size = int.from_bytes(data[:4], "little")
    halves = np.frombuffer(inflate(data[4 + mask_size :], 2 * count), np.uint8)
    moved = halves[:count].astype(np.uint16)
    moved |= halves[count:].astype(np.uint16) << np.uint16(8)
    moved = moved.reshape(steps, tensors)
    tail = moved[1:]
    moved[1:] = (tail >> 1) ^ (0 - (tail & 1)).astype(np.uint16)
    plane = np.cumsum(moved, axis=0, dtype=np.uint16)
    if mask_size:
        bits = np.frombuffer(inflate(data[4 : 4 + mask_size], (count + 7) // 8), np.uint8)
        plane[np.unpackbits(bits, count=count).reshape(steps, tensors).astype(bool)] = 0
    return plane


def _carry_forward(plane: Plane, missing: NDArray[np.bool_]) -> Plane:
    rows = np.where(missing, 0, np.arange(len(plane))[:, None])
    return np.take_along_axis(plane, np.maximum.accumulate(rows, axis=0), axis=0)


def pack_integers(values: NDArray[np.int64]) -> bytes:
    """Bytes of a one-dimensional int64 array that mostly counts up."""
    return deflate(np.diff(np.asarray(values, np.int64), prepend=0).astype("<i8"))


def unpack_integers(data: bytes, count: int) -> NDArray[np.int64]:
    """The int64[count] that `pack_integers` was given. Raises CorruptData."""
    return np.cumsum(np.frombuffer(inflate(data, 8 * count), "<i8"), dtype=np.int64)


def pack_floats(values: NDArray[np.float32]) -> bytes:
    """Bytes of a [steps, scalars] float32 array, every bit kept; the four byte planes are laid apart."""
    raw = np.ascontiguousarray(values, dtype="<f4").view(np.uint8).reshape(-1, 4)
    return deflate(raw.T)


def unpack_floats(data: bytes, steps: int, scalars: int) -> NDArray[np.float32]:
    """The float32[steps, scalars] that `pack_floats` was given, bit by bit. Raises CorruptData."""
    raw = np.frombuffer(inflate(data, 4 * steps * scalars), np.uint8).reshape(4, -1)
    return np.ascontiguousarray(raw.T).view("<f4").reshape(steps, scalars)


def to_bfloat16(values: NDArray[np.floating[Any]]) -> Plane:
    """Bits of the nearest bfloat16 (relative error at most 0.4 %); NaN stays NaN, and finite stays finite."""
    values = np.asarray(values, np.float32)
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    rounded -= np.isfinite(values) & ((rounded & 0x7FFF) == 0x7F80)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded).astype(np.uint16)


def from_bfloat16(bits: Plane) -> NDArray[np.float32]:
    """The float32 values that bfloat16 bits stand for; exact."""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)


def to_share(values: NDArray[np.floating[Any]]) -> Plane:
    """0..1 as 0..65535; only exactly 0 becomes 0 and only exactly 1 becomes 65535."""
    values = np.clip(np.nan_to_num(np.asarray(values, np.float64)), 0, 1)
    inner = np.clip(np.rint(values * 65535), 1, 65534)
    return np.where(values == 0, 0, np.where(values == 1, 65535, inner)).astype(np.uint16)


def from_share(codes: Plane) -> NDArray[np.float32]:
    """Shares 0..1, within 1/65535 of what `to_share` was given."""
    return np.asarray(codes, np.float32) / np.float32(65535)
