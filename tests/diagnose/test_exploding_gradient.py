"""Gradients that grow along the depth on their way back are found, and nothing else that looks large."""

from __future__ import annotations

from pathlib import Path

import pytest
from layers import Value, recorded, rules, steady

from tb_nanwatch.diagnose.rules.exploding_gradient import exploding_gradient

DEPTH = 12


def growing(layer: int, _: int) -> float:
    return 0.05 * 2.5 ** (DEPTH - 1 - layer)


def test_gradients_that_explode(tmp_path: Path) -> None:
    (finding,) = exploding_gradient(recorded(tmp_path, DEPTH, gradient=growing))
    assert (finding.rule, finding.tensor, finding.first_step) == ("exploding_gradient", "d0/kernel", 0)
    assert finding.evidence[0].startswith("the gradient of d0/kernel is 23,8")
    assert finding.evidence[2] == "the gradient grows over 12 layers, from back to front"
    assert finding.remedies[0] == "clip_gradients"


@pytest.mark.parametrize(
    "gradient",
    [
        pytest.param(steady(0.5), id="even"),
        pytest.param(lambda i, s: growing(DEPTH - 1 - i, s), id="vanishing"),
        pytest.param(lambda i, _: 0.05 * 1.5 ** (DEPTH - 1 - i), id="mild, as behind batch normalization"),
        pytest.param(lambda i, _: 5000.0 if i == 0 else 0.5, id="raw pixels: the first layer alone"),
        pytest.param(lambda i, s: 1e-4 * growing(i, s), id="small beside the weights"),
        pytest.param(lambda i, s: growing(i, s) if s < 40 else 0.5, id="over"),
        pytest.param(lambda i, s: growing(i, s) if s % 10 == 0 else 0.5, id="now and then"),
    ],
)
def test_gradients_that_do_not(gradient: Value, tmp_path: Path) -> None:
    assert rules(exploding_gradient(recorded(tmp_path, DEPTH, gradient=gradient))) == []
