from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_nanwatch.format import framing
from tb_nanwatch.read import tail as tail_module
from tb_nanwatch.read.resync import find_header
from tb_nanwatch.read.tail import MAX_DAMAGE, Tail

PAYLOADS = [bytes([n]) * (5 + 7 * n) for n in range(6)]
FRAMES = [framing.frame(p) for p in PAYLOADS]


def read(path: Path) -> tuple[list[bytes], Tail]:
    tail = Tail(path)
    return [frame.data for frame in tail.frames()], tail


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_whole_file(tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"".join(FRAMES))
    tail = Tail(path)
    frames = list(tail.frames())
    assert [f.data for f in frames] == PAYLOADS
    assert [f.offset for f in frames] == [sum(map(len, FRAMES[:n])) for n in range(6)]
    assert (tail.damage, tail.pending) == ((), 0)
    assert list(tail.frames()) == []


def test_a_file_cut_at_any_byte_is_being_written_and_goes_on(tmp_path: Path) -> None:
    data = b"".join(FRAMES)
    ends = np.cumsum([len(f) for f in FRAMES])
    for cut in range(len(data) + 1):
        path = write(tmp_path / f"f{cut}", data[:cut])
        got, tail = read(path)
        whole = int((ends <= cut).sum())
        assert got == PAYLOADS[:whole]
        assert (tail.damage, tail.pending) == ((), cut - ([0, *ends][whole]))
        with path.open("ab") as file:
            file.write(data[cut:])
        assert [f.data for f in tail.frames()] == PAYLOADS[whole:]
        assert tail.damage == ()


def test_any_flipped_byte_costs_its_record_only(tmp_path: Path) -> None:
    data = b"".join(FRAMES)
    starts = np.cumsum([0, *(len(f) for f in FRAMES)])
    for at in range(len(data)):
        hurt = int(np.searchsorted(starts, at, side="right")) - 1
        broken = bytearray(data)
        broken[at] ^= 0x40
        got, tail = read(write(tmp_path / "f", bytes(broken)))
        assert got == PAYLOADS[:hurt] + PAYLOADS[hurt + 1 :]
        (damage,) = tail.damage
        assert (damage.offset, damage.size) == (starts[hurt], len(FRAMES[hurt]))
        assert f"skipped {len(FRAMES[hurt])} bytes at offset {starts[hurt]}" in str(damage)


@pytest.mark.parametrize("hole", [1, 11, 12, 100, 5000])
@pytest.mark.parametrize("fill", [b"\0", b"\xff", b"N"])
def test_a_hole_is_skipped_and_measured(tmp_path: Path, hole: int, fill: bytes) -> None:
    got, tail = read(write(tmp_path / "f", FRAMES[0] + fill * hole + FRAMES[1]))
    assert got == PAYLOADS[:2]
    assert [(d.offset, d.size) for d in tail.damage] == [(len(FRAMES[0]), hole)]


def test_bytes_taken_out_of_a_record_cost_that_record_only(tmp_path: Path) -> None:
    got, _ = read(write(tmp_path / "f", FRAMES[0] + FRAMES[4][:20] + FRAMES[4][23:] + FRAMES[5]))
    assert got == [PAYLOADS[0], PAYLOADS[5]]


def test_a_hole_at_the_end_that_grows_is_one_damage(tmp_path: Path) -> None:
    path = write(tmp_path / "f", FRAMES[0] + bytes(40))
    _, tail = read(path)
    assert [(d.offset, d.size) for d in tail.damage] == [(len(FRAMES[0]), 40)]
    with path.open("ab") as file:
        file.write(bytes(60) + FRAMES[1])
    assert [f.data for f in tail.frames()] == PAYLOADS[1:2]
    assert [(d.offset, d.size) for d in tail.damage] == [(len(FRAMES[0]), 100)]


def test_records_longer_than_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_module, "CHUNK_BYTES", 64)
    payloads = [bytes(10), bytes(1000), bytes(64), bytes(3)]
    path = write(tmp_path / "f", b"".join(map(framing.frame, payloads)))
    assert read(path)[0] == payloads
    broken = bytearray(path.read_bytes())
    broken[100] ^= 1  # inside the long one
    got, tail = read(write(path, bytes(broken)))
    assert got == [payloads[0], *payloads[2:]]
    assert [d.size for d in tail.damage] == [1016]


def test_a_length_beyond_the_file_is_waited_for_without_memory(tmp_path: Path) -> None:
    length = struct.pack("<Q", framing.MAX_RECORD_BYTES)
    header = length + struct.pack("<I", framing.masked_crc(length))
    got, tail = read(write(tmp_path / "f", FRAMES[0] + header + b"abc"))
    assert got == PAYLOADS[:1]
    assert tail.pending == 15
    length = struct.pack("<Q", framing.MAX_RECORD_BYTES + 1)
    header = length + struct.pack("<I", framing.masked_crc(length))
    got, tail = read(write(tmp_path / "g", header + FRAMES[0]))
    assert got == PAYLOADS[:1]
    assert [(d.offset, d.size) for d in tail.damage] == [(0, 12)]


def test_a_file_full_of_damage_keeps_its_list_short(tmp_path: Path) -> None:
    _, tail = read(write(tmp_path / "f", (b"xx" + FRAMES[0]) * (MAX_DAMAGE + 20)))
    assert len(tail.damage) == MAX_DAMAGE + 1
    assert "20 more damaged places" in str(tail.damage[-1])


def test_replaced_and_shrunk_files_are_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"".join(FRAMES))
    _, tail = read(path)
    assert not tail.replaced(path.stat())
    with path.open("ab") as file:
        file.write(FRAMES[0])
    assert not tail.replaced(path.stat())
    path.write_bytes(FRAMES[0])  # same inode, shorter
    assert tail.replaced(path.stat())

    path = write(tmp_path / "g", b"".join(FRAMES))
    _, tail = read(path)
    (tmp_path / "h").write_bytes(b"".join(FRAMES))
    os.replace(tmp_path / "h", path)  # noqa: PTH105  # another inode, same size
    assert tail.replaced(path.stat())
    assert list(tail.frames()) == []  # whoever did not ask gets nothing of the other file

    _, tail = read(path)
    with path.open("r+b") as file:  # the same inode with other content and more of it: a number that came back
        file.write(framing.frame(b"another beginning" * 3) + b"".join(FRAMES) * 2)
    assert tail.replaced(path.stat())


@given(st.binary(max_size=300), st.integers(0, 2))
def test_find_header_agrees_with_asking_every_offset(noise: bytes, frames: int) -> None:
    data = noise + b"".join(FRAMES[:frames]) + noise
    for start in (0, 1, len(noise)):
        slow = (i for i in range(start, len(data) - 11) if framing.header_length(data[i : i + 12]) is not None)
        assert find_header(data, start) == next(slow, None)


@given(st.lists(st.one_of(st.sampled_from(FRAMES), st.binary(max_size=40)), max_size=8))
def test_no_mixture_raises_or_loops(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
    path = write(tmp_path_factory.mktemp("t") / "f", b"".join(pieces))
    got, tail = read(path)
    assert len(got) >= sum(piece in FRAMES for piece in pieces[:1])
    assert sum(map(len, got)) + 16 * len(got) + sum(d.size for d in tail.damage) + tail.pending == path.stat().st_size
