"""What the recorder's trials say of each remedy, and in which order they leave the remedies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_RANK: Final = {"finite": 0, "not_run": 1, "inconclusive": 1, "nonfinite": 2}
_NOT_RUN: Final = {"outcome": "not_run", "steps": 0, "control": "not_run", "note": ""}
_TEXT: Final = ("outcome", "control", "note")


def of(replay: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The trials in a replay's findings; entries of another shape are left out, since files are untrusted."""
    trials = replay.get("trials")
    return [
        dict(trial)
        for trial in (trials if isinstance(trials, list) else [])
        if isinstance(trial, dict)
        and trial.get("outcome") in _RANK
        and all(isinstance(trial.get(key), str) for key in (*_TEXT, "remedy"))
        and isinstance(trial.get("steps"), int)
    ]


def best(name: str, trials: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The most telling trial of a remedy: a finite one if there is one, then the one that ran longest."""
    mine = sorted((t for t in trials if t["remedy"] == name), key=lambda t: (_RANK[t["outcome"]], -t["steps"]))
    if not mine:
        return dict(_NOT_RUN)
    chosen = {key: mine[0][key] for key in ("outcome", "steps", "control", "note")}
    losses = mine[0].get("losses")
    return chosen | ({"losses": losses} if isinstance(losses, list) and losses else {})


def ranked(names: Sequence[str], trials: Sequence[Mapping[str, Any]]) -> list[str]:
    """Remedies in the order given, those that a trial proved before the others and those that it refuted behind.

    The first of them, which fits the cause best, stays among the first two unless it was refuted: not everything can be
    tried, and what held for a while need not be the cure.
    """
    order = sorted(names, key=lambda name: _RANK[best(name, trials)["outcome"]])
    if names and order.index(names[0]) > 1 and best(names[0], trials)["outcome"] != "nonfinite":
        order.remove(names[0])
        order.insert(1, names[0])
    return order
