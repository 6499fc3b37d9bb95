"""Records of one event file: which file is ours, what its records say, and where the bulky ones lie."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from tb_nanwatch.errors import CorruptData, NewerFormat, UnreadableError
from tb_nanwatch.format import codec, framing, metadata
from tb_nanwatch.format.records import BlockSummary, FullSummary, Record
from tb_nanwatch.read.discovery import readable
from tb_nanwatch.read.tail import MAX_DAMAGE, Damage, Frame, Tail

#: A file of ours says so in its name or in its second record. Whoever looks no further than this pays next to nothing
#: for the gigabytes of histograms that other programs write; importers read those on request.
FOREIGN_AFTER: Final = 8


@dataclass(frozen=True)
class Located:
    """A record and where it lies. Blocks come as summaries: `load` reads their planes."""

    offset: int
    size: int
    step: int
    wall_time: float
    record: Record | BlockSummary | FullSummary


class Vanished(UnreadableError):
    """What was indexed is not there any more: the file was thinned, exchanged or deleted."""


class RecordFile:
    """Tails one event file.

    `foreign` is True once it is clear that another program wrote it, `ours` once it is clear that this package did.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.foreign = False
        self._tail = Tail(path)
        self.ours = path.name.endswith(metadata.FILE_SUFFIX)
        self._too_new = False
        self._events = 0
        self._damage: list[Damage] = []

    @property
    def damage(self) -> tuple[str, ...]:
        """What was skipped and why, in the order of the file."""
        if self.foreign:
            return ()
        places = sorted((*self._tail.damage, *self._damage), key=lambda d: d.offset)
        return tuple(str(place) for place in places)

    @property
    def pending(self) -> int:
        """Bytes at the end that may yet become a record."""
        return self._tail.pending

    @property
    def offset(self) -> int:
        """How far the file was read, in bytes."""
        return self._tail.offset

    def replaced(self, status: os.stat_result) -> bool:
        """True if the path holds another file now: forget this one. `status` is a fresh os.stat."""
        return self._tail.replaced(status)

    def new_records(self, status: os.stat_result) -> Iterator[Located]:
        """Records that were not handed out before. Raises OSError if the file is gone."""
        if self.foreign or self._too_new or self._tail.unchanged(status):
            return
        for frame in self._tail.frames():
            self._events += 1
            yield from self._records_in(frame)
            if not self.ours and self._events >= FOREIGN_AFTER:
                self.foreign = True
            if self.foreign or self._too_new:
                return

    def _records_in(self, frame: Frame) -> Iterator[Located]:
        try:
            event = metadata.parse(frame.data)
            payloads = metadata.unwrap(event)
            for payload in payloads:
                self.ours = True
                record = codec.decode(payload)
                if record is not None:
                    yield Located(frame.offset, frame.size, event.step, event.wall_time, record)
        except (DecodeError, CorruptData, ValueError) as error:
            self._too_new = isinstance(error, NewerFormat)
            if len(self._damage) < MAX_DAMAGE:
                self._damage.append(Damage(readable(self.path.name), frame.offset, frame.size, str(error)))


def load(path: Path, offset: int, size: int) -> Any:
    """The record at a place that an index remembers, planes unpacked. Raises Vanished if it is not there any more.

    Raises CorruptData if it is there, and its planes are not what a recorder writes.
    """
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(offset)
            frame = file.read(size)
    except OSError as error:
        raise Vanished(f"{path}: {error}") from error
    data = frame[framing.HEADER_BYTES : -framing.FOOTER_BYTES]
    if len(frame) != size or framing.masked_crc(data) != int.from_bytes(frame[-framing.FOOTER_BYTES :], "little"):
        raise Vanished(f"{path}: the record at offset {offset} is not there any more")
    try:
        for payload in metadata.unwrap(metadata.parse(data)):
            return codec.decode(payload, unpack_steps=True)
    except (DecodeError, ValueError) as error:
        raise Vanished(f"{path}: the record at offset {offset} is another one now: {error}") from error
    raise Vanished(f"{path}: the record at offset {offset} is another one now")
