"""What the recorder's trials say of each remedy, and in which order they leave the remedies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_RANK: Final = {"finite": 0, "not_run": 1, "inconclusive": 1, "nonfinite": 2}
_NOT_RUN: Final = {"outcome": "not_run", "steps": 0, "control": "not_run", "note": ""}
_TEXT: Final = ("outcome", "control", "note")
STILL: Final = 1e-3  # of the loss: what moves less does not train
MOVED: Final = 0.01

FALLS, RISES, FLAT = "falls", "rises", "flat"


def of(replay: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The trials in a replay's findings; entries of another shape are left out, since files are untrusted.

    A trial that speaks for several remedies is there once for each.
    """
    trials = replay.get("trials")
    return [
        {**trial, "remedy": name}
        for trial in (trials if isinstance(trials, list) else [])
        if isinstance(trial, dict)
        and trial.get("outcome") in _RANK
        and all(isinstance(trial.get(key), str) for key in (*_TEXT, "remedy"))
        and isinstance(trial.get("steps"), int)
        for name in (trial["remedy"], *_also(trial))
    ]


def _also(trial: Mapping[str, Any]) -> list[str]:
    also = trial.get("also")
    return [name for name in also if isinstance(name, str)] if isinstance(also, list) else []


def best(name: str, trials: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The most telling trial of a remedy: one that stayed finite and trained, then one that stayed finite longest."""
    mine = sorted((t for t in trials if t["remedy"] == name), key=lambda t: (*_rank(t), -t["steps"]))
    if not mine:
        return dict(_NOT_RUN)
    return {key: mine[0][key] for key in ("outcome", "steps", "control", "note")} | dict(_further(mine[0]))


def _further(trial: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    losses, value, setting = trial.get("losses"), trial.get("value"), trial.get("setting")
    if isinstance(losses, list) and losses:
        yield "losses", losses
    if _course(trial) is not None:
        yield "course", list(trial["course"])
    if _is_number(value):
        yield "value", value
    if isinstance(setting, str) and setting:
        yield "setting", setting


def proven(trials: Sequence[Mapping[str, Any]]) -> list[str]:
    """Remedies with which training stayed finite and trained, in the order in which they were tried."""
    return list(dict.fromkeys(t["remedy"] for t in trials if _rank(t) == (0, False) and course(t) == FALLS))


def ranked(names: Sequence[str], trials: Sequence[Mapping[str, Any]]) -> list[str]:
    """Remedies in the order given, those that a trial proved before the others and those that it refuted behind.

    The first of them, which fits the cause best, stays among the first two unless it was refuted: not everything can be
    tried, and what held for a while need not be the cure. Among those that held, the ones that trained come first.
    """
    order = sorted(names, key=lambda name: _rank(best(name, trials)))
    if names and order.index(names[0]) > 1 and best(names[0], trials)["outcome"] != "nonfinite":
        order.remove(names[0])
        order.insert(1, names[0])
    return order


def course(trial: Mapping[str, Any]) -> str:
    """What the loss did while the trial ran: FALLS, RISES, FLAT, or "" where that is not known."""
    ends = _course(trial)
    if ends is None:
        return ""
    first, last = ends
    if abs(last - first) <= STILL * abs(first):
        return FLAT
    if last < first - MOVED * abs(first):
        return FALLS
    return RISES if last > first + MOVED * abs(first) else ""


def _rank(trial: Mapping[str, Any]) -> tuple[int, bool]:
    return _RANK[trial["outcome"]], course(trial) in (RISES, FLAT)


def _course(trial: Mapping[str, Any]) -> tuple[float, float] | None:
    ends = trial.get("course")
    if not isinstance(ends, list) or len(ends) != 2 or not all(map(_is_number, ends)):
        return None
    return float(ends[0]), float(ends[1])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
