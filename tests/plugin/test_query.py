from __future__ import annotations

import pytest
from werkzeug.datastructures import MultiDict

from tb_nanwatch.plugin import query
from tb_nanwatch.plugin.query import BadQuery

TILE = {"run": "r", "kind": "weight", "level": "3", "tile": "0"}


def test_a_tile() -> None:
    asked = query.tile(MultiDict({**TILE, "rows": "2:7", "attempt": "1"}))
    assert asked == query.TileQuery("r", "weight", 3, 0, (2, 7), 1)


def test_defaults_of_a_series() -> None:
    asked = query.series(MultiDict({"run": "r", "tag": "weight/k"}))
    assert asked == query.SeriesQuery("r", "weight/k", None, None, None, 1024, None)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"run": ""}, "parameter run: empty"),
        ({"kind": "weights"}, "allowed are weight, gradient, applied, activation, update, input"),
        ({"level": "41"}, "parameter level: '41' is not allowed; allowed is a whole number 0 to 40"),
        ({"level": "-1"}, "parameter level"),
        ({"level": "1.0"}, "parameter level"),
        ({"level": "1_0"}, "parameter level"),
        ({"level": "٣"}, "parameter level"),
        ({"level": " 3"}, "parameter level"),
        ({"level": "9" * 5000}, "parameter level"),
        ({"tile": "4398046511104"}, "parameter tile"),
        ({"rows": "7:2"}, "parameter rows: '7:2' is not allowed; allowed is A:B with A < B and at most 4096 rows"),
        ({"rows": "2:2"}, "parameter rows"),
        ({"rows": "0:4097"}, "parameter rows"),
        ({"rows": "2"}, "parameter rows"),
        ({"rows": "-1:2"}, "parameter rows"),
        ({"rows": ""}, "parameter rows"),
        ({"attempt": "x"}, "parameter attempt"),
        ({"tag": "x"}, "unknown parameter 'tag'; allowed are run, kind, level, tile, rows, attempt"),
        ({"\x1b[31m": "x"}, r"unknown parameter '\x1b[31m'"),
    ],
)
def test_a_bad_parameter_is_named(change: dict[str, str], says: str) -> None:
    with pytest.raises(BadQuery) as caught:
        query.tile(MultiDict({**TILE, **change}))
    assert says in str(caught.value)
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", TILE)
def test_a_missing_parameter_is_named(name: str) -> None:
    rest = {key: value for key, value in TILE.items() if key != name}
    with pytest.raises(BadQuery, match=f"parameter {name}: missing"):
        query.tile(MultiDict(rest))


def test_a_repeated_parameter_is_named() -> None:
    with pytest.raises(BadQuery, match="parameter run: given 2 times; allowed is once"):
        query.run(MultiDict([("run", "a"), ("run", "b")]))


def test_first_after_last() -> None:
    with pytest.raises(BadQuery, match="9 is after 3"):
        query.series(MultiDict({"run": "r", "tag": "t", "first": "9", "last": "3"}))


@pytest.mark.parametrize("bins", ["0", "4097"])
def test_bins_are_bounded(bins: str) -> None:
    with pytest.raises(BadQuery, match="allowed is a whole number 1 to 4096"):
        query.series(MultiDict({"run": "r", "tag": "t", "bins": bins}))
