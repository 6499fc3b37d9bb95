from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tb_nanwatch.diagnose.strict import dumps

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def refuse(constant: str) -> Any:
    raise AssertionError(f"{constant} is not JSON")


@given(values)
def test_anything_becomes_strict_json(value: Any) -> None:
    text = dumps(value)
    json.loads(text, parse_constant=refuse)
    assert text.isascii()


def test_non_finite_numbers_are_strings() -> None:
    given_values = {"a": float("nan"), "b": (float("inf"), -float("inf"))}
    assert json.loads(dumps(given_values)) == {"a": "NaN", "b": ["Infinity", "-Infinity"]}
