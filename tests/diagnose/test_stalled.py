"""A training that stands still since a huge gradient is found; other reasons for no updates are not taken for it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from layers import Value, recorded, rules, steady

from tb_nanwatch.diagnose.rules import updates
from tb_nanwatch.diagnose.rules.stalled import stalled
from tb_nanwatch.diagnose.rules.update_too_small import update_too_small


def huge(size: float = 1e20, at: int = 33) -> Value:
    return lambda _, step: size if step == at else 0.5


def ends(layer: int, step: int) -> float:
    return 0.004 if step <= 33 else 0.0


def test_an_infinite_slot(tmp_path: Path) -> None:
    run = recorded(tmp_path, update=ends, gradient=huge(1e22))
    (finding,) = stalled(run)
    assert (finding.tensor, finding.first_step, finding.last_step) == ("d0/kernel", 40, 119)
    huge_once = "the gradient was 1e22 at step 33, and 0.5 is typical since"
    assert finding.evidence == (
        "no step measured since step 40 changed d0/kernel, whose gradient is 0.125 of its norm",
        "so it is with d1/kernel and d2/kernel",
        f"{huge_once}: its square is beyond float32, and an average of squares that is infinite stays so",
        "begin again with a new optimizer, from weights of before step 33 if there are any",
    )
    assert finding.remedies == ("clip_gradients", "clean_input")
    assert rules(update_too_small(run)) == []


def test_long_ago(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is looked at closely is still; that it moved once is known, and where the gradient was huge."""
    for module in (updates, import_module("tb_nanwatch.diagnose.rules.stalled")):
        monkeypatch.setattr(module, "LOOKED_AT", 60)

    def update(layer: int, step: int) -> float:
        return ends(layer, step) if layer == 1 else 0.004

    run = recorded(tmp_path, update=update, gradient=lambda i, s: 1e20 if (i, s) == (1, 33) else 0.5, steps=400)
    (finding,) = stalled(run)
    assert (finding.tensor, finding.first_step) == ("d1/kernel", 340)
    assert "at step 33" in finding.evidence[1]
    assert rules(update_too_small(run)) == []


def test_a_slot_that_is_merely_huge(tmp_path: Path) -> None:
    (finding,) = stalled(recorded(tmp_path, update=ends, gradient=huge(1e12)))
    assert "keeps that for long" in finding.evidence[2]


def test_one_layer(tmp_path: Path) -> None:
    run = recorded(
        tmp_path,
        update=lambda i, s: ends(i, s) if i == 1 else 0.004,
        gradient=lambda i, s: 1e20 if (i, s) == (1, 33) else 0.5,
    )
    assert rules(stalled(run)) == [("stalled", "d1/kernel")]


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"gradient": steady(0.5)}, id="no huge gradient: frozen by whoever trains"),
        pytest.param({"gradient": huge(100.0)}, id="a gradient that is not huge"),
        pytest.param({"rate": lambda s: 1e-3 if s <= 33 else 0.0}, id="the rate has decayed"),
        pytest.param({"dtype": "bfloat16"}, id="numbers of few bits"),
        pytest.param({"update": steady(0.0)}, id="never moved: accumulated, or not given to the optimizer"),
        pytest.param({"update": lambda i, s: 0.004 if s <= 80 else 0.0}, id="for a moment"),
        pytest.param({"update": lambda i, s: ends(i, s) if s < 110 else 1e-4}, id="moves again"),
        pytest.param(
            {"gradient": lambda _, s: 1e20 if s == 33 else 0.5 if s < 33 else 1e-9}, id="nothing is asked any more"
        ),
    ],
)
def test_other_reasons(how: dict[str, object], tmp_path: Path) -> None:
    assert rules(stalled(recorded(tmp_path, **{"update": ends, "gradient": huge(), **how}))) == []  # type: ignore[arg-type]
