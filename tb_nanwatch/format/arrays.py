"""Arrays in a file that may come from anybody: an .npz without pickle, whose members lie uncompressed.

So what is read is never larger than the file. dtypes that numpy lacks, as bfloat16, are kept as their bits, and
their name is kept elsewhere.
"""

from __future__ import annotations

import math
import re
import stat
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.errors import CorruptData, UnreadableError

NATIVE: Final = frozenset(
    f"{kind}{bits}"
    for kind, sizes in (
        ("int", (8, 16, 32, 64)),
        ("uint", (8, 16, 32, 64)),
        ("float", (16, 32, 64)),
        ("complex", (64, 128)),
    )
    for bits in sizes
) | {"bool"}
_npy: Any = np.lib.format  # untyped
_BITS: Final = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
MOST_ARRAYS: Final = 100_000
_MAGIC: Final = b"\x93NUMPY\x01\x00"  # version 1.0, the only one that is written here
_HEADER: Final = re.compile(
    rb"\{'descr': '([<|][biufc]\d{1,2})', 'fortran_order': False, 'shape': \(((?:\d{1,18}, ?)*\d{0,18})\), \} *\n?"
)


def to_bits(array: NDArray[Any]) -> NDArray[Any]:
    """The array in a dtype that every numpy knows. Raises TypeError for one that has no fixed bits, as objects."""
    if array.dtype.name in NATIVE:
        return np.asarray(array, array.dtype.newbyteorder("="), order="C")
    if array.dtype.hasobject or array.dtype.kind in "SUMm" or array.dtype.names or array.dtype.itemsize not in _BITS:
        raise TypeError(f"an array of {array.dtype} cannot be kept")
    return np.asarray(array, order="C").view(_BITS[array.dtype.itemsize])


def as_numbers(bits: NDArray[Any], dtype: str) -> NDArray[Any] | None:
    """Numbers for ranges and counts, float64 or complex; None for a dtype whose bits nobody here can read."""
    if bits.dtype.name == dtype:
        return bits if bits.dtype.kind == "c" else bits.astype(np.float64)
    if dtype == "bfloat16" and bits.dtype == np.uint16:
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype == "float8_e5m2" and bits.dtype == np.uint8:
        return (bits.astype(np.uint16) << 8).view(np.float16).astype(np.float64)
    return None


def write(path: Path, arrays: Iterable[tuple[str, NDArray[Any]]]) -> None:
    """Write arrays of native dtypes, one after the other. Raises OSError."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays:
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                _npy.write_array(member, array, version=(1, 0), allow_pickle=False)


class Arrays:
    """An open file of arrays. Raises UnreadableError or CorruptData from the constructor and from `read`."""

    def __init__(self, path: Path) -> None:
        self._name = path.name
        try:
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):
                raise CorruptData(f"{path.name} is no ordinary file")
            self._archive = zipfile.ZipFile(path)  # closed with this object
        except OSError as error:
            raise UnreadableError(f"{path.name}: {error.strerror or error}") from error
        except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError) as error:
            raise CorruptData(f"{path.name} is damaged: {error}") from error
        members = self._archive.infolist()
        if len(members) > MOST_ARRAYS or sum(m.file_size for m in members) > status.st_size:
            raise CorruptData(f"{path.name} claims to hold more than it does")
        if any(m.compress_type != zipfile.ZIP_STORED or m.compress_size != m.file_size for m in members):
            raise CorruptData(f"{path.name} is compressed, which no recorder does")
        self._members = {m.filename.removesuffix(".npy"): m for m in members}

    def close(self) -> None:
        """Read no more."""
        self._archive.close()

    def read(self, name: str, dtype: str, shape: Sequence[int]) -> NDArray[Any]:
        """The bits of one array, read-only, which must have this dtype and shape."""
        if name not in self._members:
            raise CorruptData(f"{self._name} lacks the array {name[:40]!r}")
        try:
            data = self._archive.read(self._members[name])
            array = _parse(data)
        except OSError as error:
            raise UnreadableError(f"{self._name}: {error.strerror or error}") from error
        except (zipfile.BadZipFile, ValueError, TypeError, EOFError, RuntimeError) as error:
            raise CorruptData(f"{self._name}: the array {name[:40]!r} is damaged: {error}") from error
        fits = array.dtype.name == dtype if dtype in NATIVE else array.dtype in _BITS.values()
        if not fits or array.shape != tuple(shape):
            raise CorruptData(f"{self._name}: the array {name[:40]!r} is not what the manifest says")
        return array


def _parse(data: bytes) -> NDArray[Any]:
    """The array of a member. numpy's own parser would evaluate the header."""
    end = len(_MAGIC) + 2 + int.from_bytes(data[len(_MAGIC) : len(_MAGIC) + 2], "little")
    header = _HEADER.fullmatch(data[len(_MAGIC) + 2 : end])
    if not data.startswith(_MAGIC) or header is None:
        raise ValueError("it begins as no array of a recorder")
    dtype = np.dtype(header[1].decode())
    shape = tuple(int(size) for size in header[2].replace(b",", b" ").split())
    if dtype.name not in NATIVE or math.prod(shape) * dtype.itemsize != len(data) - end:
        raise ValueError("its size is not that of its shape")
    return np.frombuffer(data, dtype, offset=end).reshape(shape)
