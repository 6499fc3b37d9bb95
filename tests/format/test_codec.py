from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from golden.make import RECORDS
from hypothesis import given, settings
from strategies import full_blocks, records, same, step_blocks

from tb_nanwatch.errors import CorruptData
from tb_nanwatch.format import codec, magnitude, nanwatch_pb2, planes
from tb_nanwatch.format.records import (
    BlockSummary,
    FullBlock,
    Incident,
    Note,
    Origin,
    Record,
    RunHeader,
    Source,
    StepBlock,
    TensorInfo,
)


@given(records.filter(lambda r: not isinstance(r, FullBlock)))
@settings(max_examples=300)
def test_every_record_comes_back(record: Record) -> None:
    assert same(codec.decode(codec.encode(record), unpack_steps=True), record)


@given(full_blocks())
def test_full_blocks_come_back_within_their_precision(block: FullBlock) -> None:
    back: Any = codec.decode(codec.encode(block), unpack_steps=True)
    missing = np.isnan(block.max_abs)
    assert np.array_equal(back.steps, block.steps)
    assert np.array_equal(back.ids, block.ids)
    assert np.array_equal(np.isnan(back.max_abs), missing)
    reachable = ~missing & (block.max_abs > 1e-130)
    assert np.all(np.abs(back.max_abs[reachable] / block.max_abs[reachable] - 1) <= magnitude.RELATIVE_ERROR + 1e-12)
    assert np.array_equal(back.max_abs == 0, block.max_abs == 0)
    for name in ("zero_share", "subnormal_share"):
        shares = getattr(back, name)
        assert np.array_equal(np.isnan(shares), missing)
        assert np.all(np.abs(shares - getattr(block, name))[~missing] <= 2e-5)
    assert np.array_equal(np.isnan(back.mean), np.isnan(block.mean))


@given(step_blocks())
def test_summaries_say_what_the_planes_say(block: StepBlock) -> None:
    summary = codec.decode(codec.encode(block))
    assert isinstance(summary, BlockSummary)
    assert np.array_equal(summary.steps, block.steps)
    for column in range(len(block.norm_ids)):
        plane = block.norms[:, column].tolist()
        finite = [code for code in plane if code == magnitude.ZERO or code >= magnitude.FIRST_FINITE]
        bits = 0
        for code in plane:
            bits |= magnitude.UNKNOWN if code == magnitude.NONFINITE_UNKNOWN else code - 1 if 2 <= code <= 8 else 0
        assert summary.low[column] == (min(finite) if finite else 0)
        assert summary.high[column] == (max(finite) if finite else 0)
        assert summary.state[column] == bits


def test_unknown_rank_is_not_a_scalar() -> None:
    table = (TensorInfo(0, "weight", "a", shape=None), TensorInfo(1, "weight", "b", shape=()))
    assert codec.decode(codec.encode(table)) == table


def test_a_newer_format_is_refused_by_name() -> None:
    with pytest.raises(CorruptData, match=r"format 2, .* reads up to 1"):
        codec.decode(codec.encode(RunHeader("w", format_version=2)))


def test_unknown_kinds_and_fields_are_skipped() -> None:
    unknown_kind = bytes([15 << 3 | 2, 3]) + b"abc"  # field 15, three bytes
    assert codec.decode(unknown_kind) is None
    note = Note(3, "restart", "again")
    assert codec.decode(codec.encode(note) + unknown_kind) == note


def test_text_that_utf8_cannot_hold_ends_no_recording() -> None:
    odd = "caf\udce9.py"
    source = Source(odd, 3, odd, odd)
    back: Any = codec.decode(codec.encode(Incident(0, 1, 1, Origin("loss", layer=odd, source=source))))
    assert back.origin.source == Source("caf?.py", 3, "caf?.py", "caf?.py")
    header: Any = codec.decode(codec.encode(RunHeader("w", host=odd, options={odd: odd})))
    assert header.options == {"caf?.py": "caf?.py"}
    table: Any = codec.decode(codec.encode((TensorInfo(0, "weight", odd),)))
    assert table[0].name == "caf?.py"


def test_columns_of_different_lengths_are_damage() -> None:
    message: Any = nanwatch_pb2.Record()
    message.counts.ids.extend([1, 2])
    message.counts.nan.extend([1])
    with pytest.raises(CorruptData, match="different lengths"):
        codec.decode(message.SerializeToString())


def sample(kind: str) -> bytes:
    """A small encoded record of each kind, with every field set."""
    return codec.encode(RECORDS[kind])


KINDS = ("header", "tensors", "steps", "full", "counts", "incident", "note", "closed")


def decode_or_damage(data: bytes) -> None:
    for unpack_steps in (False, True):
        with contextlib.suppress(CorruptData):
            codec.decode(data, unpack_steps=unpack_steps)


@pytest.mark.parametrize("kind", KINDS)
def test_truncation_anywhere_is_damage_at_worst(kind: str) -> None:
    data = sample(kind)
    for length in range(len(data)):
        decode_or_damage(data[:length])


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_anywhere_is_damage_at_worst(kind: str) -> None:
    data = sample(kind)
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            decode_or_damage(bytes(flipped))


@pytest.mark.parametrize("kind", ["steps", "full"])
def test_truncated_columns_inside_a_sound_message_are_damage(kind: str) -> None:
    """The checksum of the file protects the message as a whole; a hostile one is well-formed outside only."""
    message: Any = nanwatch_pb2.Record.FromString(sample(kind))
    block = getattr(message, kind)
    for field in [f.name for f in block.DESCRIPTOR.fields if isinstance(getattr(block, f.name), bytes)]:
        whole = getattr(block, field)
        for length in range(len(whole)):
            setattr(block, field, whole[:length])
            decode_or_damage(message.SerializeToString())
        setattr(block, field, planes.deflate(np.zeros(3, np.uint8)))
        decode_or_damage(message.SerializeToString())
        setattr(block, field, whole)


def test_claims_of_huge_sizes_cost_nothing() -> None:
    message: Any = nanwatch_pb2.Record()
    message.steps.steps = 2**32 - 1
    with pytest.raises(CorruptData, match="more than any recorder writes"):
        codec.decode(message.SerializeToString(), unpack_steps=True)
    empty = replace(
        StepBlock(*[np.zeros(0, np.int64)] * 7),
        norms=np.zeros((0, 0), np.uint16),
        scalars=np.zeros((0, 0), np.float32),
        wall_times=np.zeros(0),
    )
    assert same(codec.decode(codec.encode(empty), unpack_steps=True), empty)
