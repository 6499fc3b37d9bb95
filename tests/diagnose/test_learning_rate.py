"""Learning rates and updates on the wrong scale are found; warmup, convergence and recovery are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from layers import recorded, rules, steady

from tb_nanwatch.diagnose.rules.learning_rate_too_high import learning_rate_too_high
from tb_nanwatch.diagnose.rules.learning_rate_too_low import learning_rate_too_low
from tb_nanwatch.diagnose.rules.update_too_large import update_too_large
from tb_nanwatch.diagnose.rules.update_too_small import update_too_small


def thrown(_: int, step: int) -> float:
    """Updates of a network that its first step destroyed."""
    return 3.2 if step == 0 else 0.004


def ruined(step: int) -> float:
    return 1.0 if step == 0 else 40.0 if step < 12 else 1.1


def test_thrown_by_the_first_step(tmp_path: Path) -> None:
    run = recorded(tmp_path, update=thrown, loss=ruined, rate=lambda _: 0.3)
    (finding,) = learning_rate_too_high(run)
    assert (finding.tensor, finding.first_step, finding.last_step) == ("d0/kernel", 0, 119)
    assert finding.evidence[0].startswith("the first update alone was 0.801 of the norm of d0/kernel")
    assert "was 1 before any update, rose to 40 and was at best 1.1 for long" in finding.evidence[1]
    assert finding.evidence[2] == "the learning rate was 0.3"
    assert finding.remedies[0] == "lower_learning_rate"


def test_large_steps_for_ever(tmp_path: Path) -> None:
    run = recorded(tmp_path, update=steady(0.6), loss=lambda step: 1.0 + 0.4 * (step % 2))
    (finding,) = learning_rate_too_high(run)
    assert finding.evidence[0].startswith("a step changes, in the median, 0.15 of the norm of d")
    assert rules(update_too_large(run)) == []


def test_a_rate_that_is_not_too_high(tmp_path: Path) -> None:
    recovered = recorded(tmp_path / "1", update=thrown, loss=lambda s: ruined(s) if s < 12 else 0.05)
    calm = recorded(tmp_path / "2", loss=ruined)
    falling = recorded(tmp_path / "3", update=steady(0.6))
    one = recorded(tmp_path / "4", update=lambda i, s: thrown(i, s) if i == 0 else 0.004, loss=ruined)
    late = recorded(tmp_path / "5", update=thrown, loss=ruined, iterations=500)  # a checkpoint was restored
    runs = (recovered, calm, falling, one, late)
    assert [rules(learning_rate_too_high(run)) for run in runs] == [[]] * 5


def test_thrown_far_and_back_to_guessing(tmp_path: Path) -> None:
    """Chance may be better than an unlucky beginning; after such a rise that is no training."""
    guessing = recorded(tmp_path, update=thrown, loss=lambda s: 5.1 if s == 0 else 400.0 if s < 12 else 1.1)
    assert rules(learning_rate_too_high(guessing)) == [("learning_rate_too_high", "d0/kernel")]


def test_nothing_moves(tmp_path: Path) -> None:
    run = recorded(tmp_path, update=steady(4e-8), loss=lambda s: 1.0 + 0.1 * (s % 3), rate=lambda _: 1e-8)
    (finding,) = learning_rate_too_low(run)
    assert finding.remedies == ("raise_learning_rate",)
    assert finding.evidence[0].startswith("120 steps together changed no layer by more than 1.2e-6 of its norm (d")
    assert finding.evidence[1] == "the learning rate is 1e-8"


def flat(step: int) -> float:
    return 1.0 + 0.1 * (step % 3)


def test_nothing_at_all_moves(tmp_path: Path) -> None:
    """Updates of exactly zero may be accumulated gradients, unless the rate says why."""
    tiny = recorded(tmp_path / "1", update=steady(0.0), loss=flat, rate=lambda _: 1e-9)
    usual = recorded(tmp_path / "2", update=steady(0.0), loss=flat, rate=lambda _: 1e-3)
    assert [rules(learning_rate_too_low(run)) for run in (tiny, usual)] == [
        [("learning_rate_too_low", "d0/kernel")],
        [],
    ]


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"loss": lambda s: 2.0 * 0.98**s}, id="the loss falls all the same"),
        pytest.param({"rate": lambda s: 1e-9 * (s + 1)}, id="warmup"),
        pytest.param(
            {"rate": lambda _: float("nan"), "update": lambda _, s: 1e-9 * (s + 1)}, id="warmup, rate unknown"
        ),
        pytest.param({"gradient": steady(1e-4)}, id="converged"),
        pytest.param({"update": lambda i, _: 4e-8 if i else 4e-4}, id="one layer moves: frozen ones do not"),
        pytest.param({"steps": 80}, id="short"),
        pytest.param({"rate": lambda s: 1e-3 * 0.9**s, "update": lambda _, s: 4e-3 * 0.9**s}, id="decayed to nothing"),
    ],
)
def test_a_rate_that_is_not_too_low(how: dict[str, object], tmp_path: Path) -> None:
    run = recorded(tmp_path, **{"update": steady(4e-8), "loss": flat, "rate": lambda _: 1e-8, **how})  # type: ignore[arg-type]
    assert rules(learning_rate_too_low(run)) == []


def test_one_layer_is_replaced_by_every_step(tmp_path: Path) -> None:
    run = recorded(tmp_path, update=lambda i, _: 2.0 if i == 0 else 0.004, loss=flat)
    (finding,) = update_too_large(run)
    assert finding.tensor == "d0/kernel"
    assert finding.evidence[0].startswith("a step changes d0/kernel by 0.5 of its norm")
    learns = recorded(tmp_path / "1", update=lambda i, _: 2.0 if i == 0 else 0.004)
    tenth = recorded(tmp_path / "2", update=lambda i, _: 0.8 if i == 0 else 0.004, loss=flat)
    assert [rules(update_too_large(run)) for run in (learns, tenth)] == [[], []]


def test_one_layer_stands_still(tmp_path: Path) -> None:
    run = recorded(tmp_path, update=lambda i, _: 0.0 if i == 1 else 0.004)
    (finding,) = update_too_small(run)
    assert finding.tensor == "d1/kernel"
    assert finding.evidence[-1].startswith("other layers do move: was the optimizer given this variable")
    silent = recorded(
        tmp_path / "1", update=lambda i, _: 0.0 if i == 1 else 0.004, gradient=lambda i, _: 1e-6 if i == 1 else 0.5
    )
    accumulated = recorded(tmp_path / "2", update=steady(0.0), loss=flat)
    assert [rules(update_too_small(run)) for run in (silent, accumulated)] == [[], []]


def test_bfloat16_rounds_updates_away(tmp_path: Path) -> None:
    run = recorded(tmp_path, update=steady(0.0), loss=flat, dtype="bfloat16")
    (finding,) = update_too_small(run)
    assert finding.evidence[-1] == ("a bfloat16 weight can change by 0.00391 of its value or more: less rounds away")
    assert finding.remedies[0] == "mixed_precision_policy"
    moves = recorded(tmp_path / "1", update=steady(0.0), loss=flat, dtype="bfloat16", weight=lambda _, s: 4 + 0.01 * s)
    assert rules(update_too_small(moves)) == []


def test_networks_that_take_turns(tmp_path: Path) -> None:
    """One is trained at odd steps only, none of which is measured in full."""
    run = recorded(
        tmp_path,
        update=lambda i, _: 0.0 if i == 0 else 0.004,
        gradient=lambda i, s: float("nan") if i == 0 and s % 2 == 0 else 0.5,
    )
    assert rules(update_too_small(run)) == []


def test_a_layer_that_grows_from_zeros(tmp_path: Path) -> None:
    """Its first updates are all that it has: no sign of a high rate, though the labels be noise."""

    def grown(_: int, step: int) -> float:
        return 0.05 * (step + 1)

    def update(layer: int, step: int) -> float:
        return grown(layer, step) if step == 0 else 0.2 * grown(layer, step)

    run = recorded(tmp_path, steps=60, weight=grown, update=update, output=steady(0.0), loss=flat)
    assert [rules(rule(run)) for rule in (learning_rate_too_high, update_too_large)] == [[], []]
    drawn = recorded(tmp_path / "1", steps=60, weight=grown, update=update, loss=flat)
    assert rules(learning_rate_too_high(drawn)) == [("learning_rate_too_high", "d0/kernel")]


def test_thrown_by_the_first_step_of_a_short_run(tmp_path: Path) -> None:
    """Full statistics come every tenth step: of twenty steps two updates are known, and the first is enough."""
    short = recorded(tmp_path / "1", update=thrown, loss=ruined, steps=20)
    assert rules(learning_rate_too_high(short)) == [("learning_rate_too_high", "d0/kernel")]
    learns = recorded(tmp_path / "2", update=thrown, steps=20)
    large = recorded(tmp_path / "3", update=steady(0.6), loss=lambda step: 1.0 + 0.4 * (step % 2), steps=20)
    assert [rules(learning_rate_too_high(run)) for run in (learns, large)] == [[], []]
