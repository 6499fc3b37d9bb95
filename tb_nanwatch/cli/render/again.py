"""How to look at the step of an incident again: its capsule's path, and the command lines."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass

from tb_nanwatch.diagnose import PostMortem, words

#: What the function returns that `nanwatch replay` is told of, by the run's entry point.
OPTIONS = {"keras_fit": "--model", "watch": "--step", "hook": "--step", "watch_session": "--step"}
TARGET = "MODULE:FUNCTION"


@dataclass(frozen=True)
class Again:
    """A capsule. path: as a shell in the folder where the report is made finds it; lines: commands with a remark."""

    step: int
    path: str
    lines: tuple[str, ...]


def again(found: PostMortem, logdir: str) -> list[Again]:
    """One for each incident that has a capsule, in order. `logdir` as the user gave it."""
    capsules = []
    for incident in found.run.incidents:
        if incident.capsule:
            run = "" if found.run.name == "." else found.run.name
            path = os.path.join(logdir, run, incident.capsule)  # noqa: PTH118  # ./logs stays ./logs
            capsules.append(Again(incident.first_step, words.escaped(path), _lines(found, path)))
    return capsules


def _lines(found: PostMortem, path: str) -> tuple[str, ...]:
    command = f"nanwatch replay {words.escaped(shlex.quote(path))}"
    option = OPTIONS.get(found.run.header.entry_point)
    after_an_edit = () if option is None else (f"{command} {option} {TARGET}  # run it again, after an edit",)
    return (f"{command}  # show it", *after_an_edit)
