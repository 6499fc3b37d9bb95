from __future__ import annotations

import math

import pytest

from tb_nanwatch.diagnose import words
from tb_nanwatch.format.records import Counts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.01234, "0.0123"),
        (4.5678, "4.57"),
        (1234.4, "1,234"),
        (999999.0, "999,999"),
        (1.5e12, "1.5e12"),
        (2e-9, "2e-9"),
        (-0.5, "-0.5"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
    ],
)
def test_magnitude(value: float, text: str) -> None:
    assert words.magnitude(value) == text


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        (Counts(nan=128, size=4096), "128 of 4,096 elements NaN"),
        (Counts(pos_inf=64, size=64), "all 64 elements +Inf"),
        (Counts(nan=1, size=1), "NaN"),
        (Counts(nan=2, neg_inf=1, size=9), "3 of 9 elements: 2 NaN and 1 -Inf"),
        (Counts(nan=3), "3 elements NaN"),
        (Counts(size=9), ""),
    ],
)
def test_bad_elements(counts: Counts, text: str) -> None:
    assert words.bad_elements(counts) == text


def test_count_and_span() -> None:
    assert words.count(1, "step") == "1 step"
    assert words.count(1234, "step") == "1,234 steps"
    assert words.span(5, 5) == "step 5"
    assert words.span(5, 1000) == "steps 5 to 1,000"


def test_listing() -> None:
    assert words.listing(["a"]) == "a"
    assert words.listing(["a", "b", "c"]) == "a, b and c"
    assert words.listing(list("abcdef"), 3) == "a, b, c and 3 more"


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "\u202egnp", "a\x00b", "\ud800", "x" * 10_000])
def test_names_cannot_steer_a_terminal(name: str) -> None:
    shown = words.printable(name)
    assert shown.isprintable()
    assert len(shown) <= words.LONGEST_NAME
    shown.encode()


def test_places() -> None:
    assert words.place("gradient", "conv2d_3/kernel") == "the gradient of conv2d_3/kernel"
    assert words.place("activation", "z_log_var/output", "z_log_var") == "the output of z_log_var"
    assert words.place("loss", "loss") == "the loss"
    assert words.place("loss", "") == "the loss"
