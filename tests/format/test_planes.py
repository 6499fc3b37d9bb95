from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tb_nanwatch.errors import CorruptData
from tb_nanwatch.format import planes

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=40)


@given(hnp.arrays(np.uint16, SHAPES, elements=st.one_of(st.integers(0, 65535), st.sampled_from([0, 1, 2, 65535]))))
def test_plane_round_trip(plane: np.ndarray) -> None:
    assert np.array_equal(planes.unpack(planes.pack(plane), *plane.shape), plane)


@given(hnp.arrays(np.int64, st.integers(0, 50)))
def test_integers_round_trip(values: np.ndarray) -> None:
    assert np.array_equal(planes.unpack_integers(planes.pack_integers(values), len(values)), values)


@given(hnp.arrays(np.uint32, SHAPES))
def test_floats_keep_every_bit(bits: np.ndarray) -> None:
    values = bits.view(np.float32)
    back = planes.unpack_floats(planes.pack_floats(values), *values.shape)
    assert np.array_equal(back.view(np.uint32), bits)


@given(st.lists(st.floats(width=32), min_size=1, max_size=30))
def test_bfloat16_is_the_nearest(values: list[float]) -> None:
    given_values = np.asarray(values, np.float32)
    back = planes.from_bfloat16(planes.to_bfloat16(given_values))
    assert np.array_equal(np.isnan(back), np.isnan(given_values))
    assert np.array_equal(np.isfinite(back), np.isfinite(given_values))
    plain = np.isfinite(given_values) & (np.abs(given_values) >= np.finfo(np.float32).tiny)
    assert np.all(np.abs(back[plain].astype(float) / given_values[plain].astype(float) - 1) <= 2.0**-8)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_shares_keep_their_ends(values: list[float]) -> None:
    shares = np.asarray(values)
    back = planes.from_share(planes.to_share(shares))
    assert np.array_equal(back == 0, shares == 0)
    assert np.array_equal(back == 1, shares == 1)
    assert np.max(np.abs(back - shares)) <= 1 / 65535 + 1e-7


def test_the_largest_float_stays_finite() -> None:
    largest = np.asarray([3.4028235e38, -3.4028235e38, np.inf], np.float32)
    back = planes.from_bfloat16(planes.to_bfloat16(largest))
    assert np.isfinite(back).tolist() == [True, True, False]


def test_slowly_moving_norms_take_about_a_byte() -> None:
    steps = np.arange(256)[:, None]
    noise = np.random.default_rng(0).normal(0, 2, (256, 100)).cumsum(axis=0)
    plane = (30000 + 500 * np.arange(100) / 100 + 10 * np.sin(steps / 30) + noise).astype(np.uint16)
    assert len(planes.pack(plane)) < 1.1 * plane.size


@pytest.mark.parametrize("data", [b"", b"\0\0\0", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\0nonsense"])
def test_nonsense_is_damage(data: bytes) -> None:
    with pytest.raises(CorruptData):
        planes.unpack(data, 3, 2)


def test_wrong_size_is_damage() -> None:
    packed = planes.pack(np.ones((4, 3), np.uint16))
    for steps, tensors in [(4, 2), (4, 4), (3, 3), (5, 3)]:
        with pytest.raises(CorruptData):
            planes.unpack(packed, steps, tensors)


def test_a_bomb_does_not_go_off() -> None:
    bomb = planes.deflate(np.zeros(50_000_000, np.uint8))
    with pytest.raises(CorruptData, match="announced"):
        planes.inflate(bomb, 10)
    with pytest.raises(CorruptData, match="more than any recorder writes"):
        planes.inflate(bomb, 1 << 40)
    with pytest.raises(CorruptData, match="more than any recorder writes"):
        planes.unpack(b"", 1 << 20, 1 << 20)
