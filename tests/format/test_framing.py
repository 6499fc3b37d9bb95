"""Our event files against TensorFlow's writer and readers, and TensorBoard's."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from tb_nanwatch.format import codec, framing, metadata
from tb_nanwatch.format.records import Note

PAYLOADS = [b"", b"x", b"\0" * 1000, bytes(range(256)) * 300]


def test_bytes_equal_tensorflows(tmp_path: Path) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        for payload in PAYLOADS:
            writer.write(payload)
    assert b"".join(map(framing.frame, PAYLOADS)) == (tmp_path / "theirs").read_bytes()


def test_tensorflow_reads_ours(tmp_path: Path) -> None:
    (tmp_path / "ours").write_bytes(b"".join(map(framing.frame, PAYLOADS)))
    assert [bytes(r.numpy()) for r in tf.data.TFRecordDataset(str(tmp_path / "ours"))] == PAYLOADS


def test_tensorboard_reads_ours(tmp_path: Path) -> None:
    note = Note(7, "restart", "größe")
    events = [metadata.version_event(1.5), metadata.wrap(note, 7, 2.5)]
    path = tmp_path / f"events.out.tfevents.0{metadata.FILE_SUFFIX}"
    path.write_bytes(b"".join(map(framing.frame, events)))
    version, event = EventFileLoader(str(path)).Load()
    assert version.file_version == "brain.Event:2"
    assert (event.step, event.wall_time) == (7, 2.5)
    (value,) = event.summary.value
    assert value.metadata.plugin_data.plugin_name == "nanwatch"
    assert value.metadata.data_class == 0
    assert codec.decode(value.tensor.string_val[0]) == note


def test_other_events_hold_nothing_of_ours() -> None:
    assert metadata.unwrap(metadata.parse(metadata.version_event(0.0))) == []
    event = metadata.parse(metadata.wrap(Note(0, "a", "b"), 0, 0.0))
    event.summary.value[0].metadata.plugin_data.plugin_name = "scalars"
    assert metadata.unwrap(event) == []


@given(st.binary(max_size=200))
def test_length_survives(data: bytes) -> None:
    framed = framing.frame(data)
    assert framing.header_length(framed[: framing.HEADER_BYTES]) == len(data)
    assert len(framed) == framing.HEADER_BYTES + len(data) + framing.FOOTER_BYTES


@pytest.mark.parametrize("bit", range(8 * framing.HEADER_BYTES))
def test_no_flipped_header_bit_passes(bit: int) -> None:
    header = bytearray(framing.frame(b"payload")[: framing.HEADER_BYTES])
    header[bit // 8] ^= 1 << bit % 8
    assert framing.header_length(bytes(header)) is None


def test_an_absurd_length_is_damage_even_with_a_sound_checksum() -> None:
    length = struct.pack("<Q", framing.MAX_RECORD_BYTES + 1)
    assert framing.header_length(length + struct.pack("<I", framing.masked_crc(length))) is None


def test_crc_of_the_specification() -> None:
    """CRC32C of "123456789" is 0xE3069283; masked as TensorFlow does it."""
    crc = 0xE3069283
    assert framing.masked_crc(b"123456789") == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
