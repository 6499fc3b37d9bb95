"""Follows one event file as it grows, and reads past damage in it.

Nothing here knows what a record means. A file that ends inside a record is being written (or its writer was killed):
the rest is waited for. Anything else that does not fit is damage: the bytes up to the next header
that fits are skipped and reported. Lengths are believed only as far as the file is long.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tb_nanwatch.format import framing
from tb_nanwatch.read.discovery import readable
from tb_nanwatch.read.resync import find_header

CHUNK_BYTES: Final = 8 << 20
FINGERPRINT_BYTES: Final = 64  # the version event that opens a file, with its time of writing, and a bit more
MAX_DAMAGE: Final = 100  # places listed for one file; further ones are counted


@dataclass(frozen=True)
class Frame:
    """One record whose checksums fit. `offset` and `size` (bytes) of the whole frame, `data` without framing."""

    offset: int
    size: int
    data: bytes


@dataclass(frozen=True)
class Damage:
    """Bytes that were skipped. `str` gives the sentence for the report."""

    file: str
    offset: int
    size: int
    why: str

    def __str__(self) -> str:
        return f"{self.file}: skipped {self.size} bytes at offset {self.offset}: {self.why}"


class Tail:
    """Reads what is new in a file at every call of `frames`.

    `replaced` tells that the path now holds another file, or a shorter one: begin anew with a new Tail.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0  # everything before it was handed out or given up
        self.size = 0  # of the file when last looked at
        self._identity: tuple[int, int] | None = None
        self._opening = b""
        self._seen: tuple[int, int] | None = None  # size and mtime of the last look
        self._lost_from: int | None = None  # where damage began whose end is not found yet
        self._lost_why = ""
        self._damage: list[Damage] = []
        self._unlisted = 0

    @property
    def damage(self) -> tuple[Damage, ...]:
        """All that was skipped so far, a hole at the end of the file included."""
        found = list(self._damage)
        if self._lost_from is not None and self.size > self._lost_from:
            found.append(Damage(readable(self.path.name), self._lost_from, self.size - self._lost_from, self._lost_why))
        if self._unlisted:
            found.append(Damage(readable(self.path.name), self.offset, 0, f"{self._unlisted} more damaged places"))
        return tuple(found)

    @property
    def pending(self) -> int:
        """Bytes at the end that are the beginning of a record, as far as one can tell."""
        return 0 if self._lost_from is not None else self.size - self.offset

    def replaced(self, status: os.stat_result) -> bool:
        """True if the file was exchanged or cut since it was last read. `status` is its fresh os.stat."""
        if self._identity is None:
            return False
        if (status.st_dev, status.st_ino) != self._identity or status.st_size < self.size:
            return True
        if (status.st_size, status.st_mtime_ns) == self._seen:
            return False
        try:
            with self.path.open("rb") as file:  # an inode number may come back for a new file
                return file.read(len(self._opening)) != self._opening
        except OSError:
            return True

    def unchanged(self, status: os.stat_result) -> bool:
        """True if nothing can have been added since the last look."""
        return self._identity is not None and (status.st_size, status.st_mtime_ns) == self._seen

    def frames(self) -> Iterator[Frame]:
        """Records that are complete by now and were not handed out before. Raises OSError if the file is gone."""
        with self.path.open("rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if self._identity not in (None, (status.st_dev, status.st_ino)) or status.st_size < self.size:
                return  # exchanged since the caller looked: `replaced` will say so
            self._identity = (status.st_dev, status.st_ino)
            self._seen = (status.st_size, status.st_mtime_ns)
            self.size = end = status.st_size
            if len(self._opening) < FINGERPRINT_BYTES:
                self._opening = file.read(FINGERPRINT_BYTES)
            wanted = CHUNK_BYTES
            while self.offset < end:
                file.seek(self.offset)
                before = self.offset
                asked = min(wanted, end - before)
                chunk = file.read(asked)
                yield from self._frames_in(chunk, before)
                if self.offset > before:
                    wanted = CHUNK_BYTES
                    continue
                # A record longer than the chunk: its header fits, so read that much if the file has it.
                length = framing.header_length(chunk[:12]) if len(chunk) >= framing.HEADER_BYTES else None
                wanted = (length or 0) + framing.HEADER_BYTES + framing.FOOTER_BYTES
                if length is None or wanted > end - before or len(chunk) < asked:
                    return  # being written, or cut while we read

    def _frames_in(self, chunk: bytes, base: int) -> Iterator[Frame]:
        at = 0
        while len(chunk) - at >= framing.HEADER_BYTES:
            length = framing.header_length(chunk[at : at + framing.HEADER_BYTES])
            if length is None:
                self._lose(base + at, "what should open a record does not")
                at = self._search(chunk, at + 1, base)
                continue
            self._found(base + at)
            end = at + framing.HEADER_BYTES + length
            if end + framing.FOOTER_BYTES > len(chunk):
                return
            data = chunk[at + framing.HEADER_BYTES : end]
            size = framing.HEADER_BYTES + length + framing.FOOTER_BYTES
            if framing.masked_crc(data) == int.from_bytes(chunk[end : end + framing.FOOTER_BYTES], "little"):
                self.offset = base + at + size
                yield Frame(base + at, size, data)
                at += size
            else:
                self._lose(base + at, "the checksum of a record does not fit")
                at = self._search(chunk, at + 1, base)

    def _search(self, chunk: bytes, at: int, base: int) -> int:
        """Where the next header that fits begins; all but the last few bytes of the chunk if there is none."""
        found = find_header(chunk, at)
        at = max(at, len(chunk) - framing.HEADER_BYTES + 1) if found is None else found
        self.offset = base + at
        return at

    def _lose(self, offset: int, why: str) -> None:
        if self._lost_from is None:
            self._lost_from, self._lost_why = offset, why

    def _found(self, offset: int) -> None:
        if self._lost_from is None:
            return
        if len(self._damage) < MAX_DAMAGE:
            self._damage.append(
                Damage(readable(self.path.name), self._lost_from, offset - self._lost_from, self._lost_why)
            )
        else:
            self._unlisted += 1
        self._lost_from = None
