"""Finding the next record after damage.

A record's length has a checksum of its own, so any twelve bytes can be asked whether they open a record. Asking
at every offset one by one would take minutes on a large hole. CRC32C is affine in its message: the checksum of eight
bytes is a constant XOR one table entry for each of them, so that many offsets are asked at once.
"""

from __future__ import annotations

import functools
from typing import Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.format import framing

WINDOW: Final = 1 << 20  # offsets asked at once


@functools.cache
def _tables() -> tuple[int, NDArray[np.uint32]]:
    """Checksum of eight zero bytes, and what each value of each byte adds: uint32[8, 256]."""
    zero = google_crc32c.value(bytes(8))
    tables = [
        [google_crc32c.value(bytes(k) + bytes([value]) + bytes(7 - k)) ^ zero for value in range(256)] for k in range(8)
    ]
    return zero, np.array(tables, np.uint32)


def find_header(data: bytes, start: int) -> int | None:
    """First offset from `start` on where the bytes are a record's header; None if there is none in `data`."""
    for first in range(start, len(data) - framing.HEADER_BYTES + 1, WINDOW):
        stop = min(first + WINDOW, len(data) - framing.HEADER_BYTES + 1)
        window = np.frombuffer(data, np.uint8, stop - first + framing.HEADER_BYTES - 1, first)
        for offset in first + _candidates(window, stop - first):
            if framing.header_length(data[offset : offset + framing.HEADER_BYTES]) is not None:
                return int(offset)
    return None


def _candidates(window: NDArray[np.uint8], count: int) -> NDArray[np.int64]:
    """Offsets below `count` whose checksum fits their eight bytes. window uint8[count + 11]."""
    # No record is longer than 2**28 bytes: the four high bytes of a length are zero. That leaves few to compute.
    zero = window[4 : count + 7] == 0
    offsets = np.flatnonzero(zero[:-3] & zero[1:-2] & zero[2:-1] & zero[3:])
    constant, tables = _tables()
    crc = np.full(len(offsets), constant, np.uint32)
    for k in range(4):
        crc ^= tables[k][window[offsets + k]]
    masked = ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(0xA282EAD8)
    for k in range(4):
        fits = (masked >> np.uint32(8 * k)).astype(np.uint8) == window[offsets + (8 + k)]
        offsets, masked = offsets[fits], masked[fits]
    return offsets
