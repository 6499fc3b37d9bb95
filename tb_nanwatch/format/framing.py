"""Event files: how a record is framed, checked and found again after damage.

TensorFlow's record framing: uint64 length, masked CRC32C of the length, the data, masked CRC32C of the data, all
little endian. The length has a checksum of its own, so after damage a reader can look for the next place
where one fits. A file that ends inside a record is being written, or its writer was killed: not damage.
"""

from __future__ import annotations

import struct
from typing import Final

import google_crc32c

HEADER_BYTES: Final = 12
FOOTER_BYTES: Final = 4
MAX_RECORD_BYTES: Final = 1 << 28  # a longer record is taken for damage


def masked_crc(data: bytes | memoryview) -> int:
    """CRC32C, rotated and offset as in TensorFlow's record format."""
    crc = google_crc32c.value(bytes(data))
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def frame(data: bytes) -> bytes:
    """`data` as one framed record."""
    length = struct.pack("<Q", len(data))
    return b"".join((length, struct.pack("<I", masked_crc(length)), data, struct.pack("<I", masked_crc(data))))


def header_length(header: bytes | memoryview) -> int | None:
    """Length announced by 12 header bytes, None if their checksum or size says that they are no header."""
    length, crc = struct.unpack("<QI", header)
    if length > MAX_RECORD_BYTES or masked_crc(header[:8]) != crc:
        return None
    return int(length)
