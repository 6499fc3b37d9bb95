"""How our records sit inside TensorBoard's events."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tb_nanwatch.format import codec
from tb_nanwatch.format.records import Record

PLUGIN_NAME: Final = "nanwatch"
TAG: Final = "nanwatch"
FILE_SUFFIX: Final = ".nanwatch"
CAPSULE_FOLDER: Final = f"plugins/{PLUGIN_NAME}"


def capsule_bytes(logdir: Path) -> int:
    """What the capsules of a run take on the disk."""
    folder = logdir / CAPSULE_FOLDER
    return sum(file.lstat().st_size for file in folder.glob("*/*")) if folder.is_dir() else 0


def _events() -> Any:
    from tensorboard.compat.proto import event_pb2  # loads no TensorFlow

    return event_pb2


def version_event(wall_time: float) -> bytes:
    """The event that opens every event file."""
    return bytes(_events().Event(wall_time=wall_time, file_version="brain.Event:2").SerializeToString())


def wrap(record: Record, step: int, wall_time: float) -> bytes:
    """A serialized Event that holds one record. No data class is set, so TensorBoard keeps next to nothing of it."""
    event = _events().Event(wall_time=wall_time, step=step)
    value = event.summary.value.add(tag=TAG)
    value.metadata.plugin_data.plugin_name = PLUGIN_NAME
    value.tensor.dtype = 7  # DT_STRING
    value.tensor.string_val.append(codec.encode(record))
    return bytes(event.SerializeToString())


def unwrap(event: Any) -> list[bytes]:
    """Serialized records in a parsed Event; empty for events that are not ours."""
    if event.WhichOneof("what") != "summary":
        return []
    return [
        value.tensor.string_val[0]
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == PLUGIN_NAME and len(value.tensor.string_val) == 1
    ]


def parse(data: bytes) -> Any:
    """The Event in `data`. Raises google.protobuf.message.DecodeError."""
    return _events().Event.FromString(data)
