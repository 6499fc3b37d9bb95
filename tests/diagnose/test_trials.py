"""Which trial stands for a remedy, and the order that trials leave the remedies in."""

from __future__ import annotations

from typing import Any

from tb_nanwatch.diagnose import trials
from tb_nanwatch.diagnose.account import to_do


def trial(remedy: str, outcome: str, steps: int = 5, **more: Any) -> dict[str, Any]:
    return {"remedy": remedy, "outcome": outcome, "steps": steps, "control": "nonfinite", "note": "a note", **more}


def test_a_finite_trial_stands_for_its_remedy() -> None:
    tried = [trial("clean_input", "nonfinite", 9), trial("clean_input", "finite", 64, losses=[1.0])]
    assert trials.best("clean_input", tried) == {
        "outcome": "finite",
        "steps": 64,
        "control": "nonfinite",
        "note": "a note",
        "losses": [1.0],
    }
    assert trials.best("initializer", tried)["outcome"] == "not_run"


def test_proven_remedies_come_first_and_refuted_ones_last() -> None:
    tried = [trial("a", "nonfinite"), trial("c", "finite"), trial("d", "inconclusive")]
    assert trials.ranked(["a", "b", "c", "d"], tried) == ["c", "b", "d", "a"]


def test_entries_of_another_shape_are_left_out() -> None:
    hostile: Any = [
        None,
        3,
        {},
        {"remedy": "a", "outcome": "won", "steps": 1, "control": "", "note": ""},
        trial("a", "finite", steps="9"),
    ]
    assert trials.of({"trials": hostile}) == []
    assert trials.of({"trials": "no list"}) == []
    assert trials.of({}) == []


def test_the_words_tell_what_held_and_what_did_not() -> None:
    remedies = [
        {
            "name": "clean_input",
            "why": "Why.",
            "trial": trials.best("clean_input", [trial("clean_input", "finite", 64)]),
        },
        {"name": "lower_learning_rate", "why": "", "trial": trials.best("l", [])},
        {
            "name": "clip_gradients",
            "why": "",
            "trial": trials.best("clip_gradients", [trial("clip_gradients", "nonfinite")]),
        },
    ]
    assert to_do(remedies) == (
        "What to do: clean input. Why. Tried on the recorded data with a note: finite over 64 steps; without: "
        "not finite. Otherwise: lower learning rate. Tried in vain: clip gradients."
    )


def test_what_trained_is_better_than_what_only_stayed_finite() -> None:
    frozen = trial("lower_learning_rate", "finite", 64, course=[2.0, 2.0], value=0.01)
    trained = trial("lower_learning_rate", "finite", 60, course=[2.0, 1.0], value=0.1)
    assert trials.best("lower_learning_rate", [frozen, trained])["value"] == 0.1
    rising = trial("clip_gradients", "finite", 64, course=[2.0, 9e9])
    assert trials.ranked(["clip_gradients", "lower_learning_rate"], [rising, trained])[0] == "lower_learning_rate"


def test_one_entry_for_each_remedy_of_a_trial() -> None:
    told = trials.of({"trials": [trial("a", "finite", also=["b", 3]), trial("c", "nonfinite", also="d")]})
    assert [entry["remedy"] for entry in told] == ["a", "b", "c"]
