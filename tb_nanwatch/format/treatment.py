"""One remedy for one run of a program, as `nanwatch try` hands it to the recorder: JSON in an environment variable.

The text comes from outside, so that every field is checked; what does not fit is a UsageError that says what.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tb_nanwatch.errors import UsageError

VARIABLE: Final = "TB_NANWATCH_TRY"
CONTROL: Final = "control"  # no remedy at all, for comparison
ENDED: Final = 86  # exit code of a program that the recorder ended, since the steps were done
MOST_STEPS: Final = 10**9
LONGEST: Final = 4096  # of a path

#: Remedies that can be put into a running training, each with the values that are tried, likeliest first.
DOSES: Final[Mapping[str, tuple[str, ...]]] = {
    "lower_learning_rate": ("0.1", "0.01"),
    "clip_gradients": ("norm:1", "value:0.5", "value:1"),
    "initializer": ("",),
    "clean_input": ("finite", "scale"),
    "guard_division": ("",),
    "safe_where": ("",),
    "clip_predictions_or_from_logits": ("",),
    "mixed_precision_policy": ("float32",),
}
#: Those that guard one operation: they have to be told which one, by the report of an earlier run.
GUARDS: Final = ("guard_division", "safe_where", "clip_predictions_or_from_logits")
#: What the value of a remedy may be, in words.
VALUES: Final[Mapping[str, str]] = {
    "lower_learning_rate": "a factor between 0 and 1, such as 0.1",
    "clip_gradients": "norm:BOUND or value:BOUND, such as norm:1",
    "clean_input": "finite or scale",
    "mixed_precision_policy": "float32",
}


@dataclass(frozen=True)
class Place:
    """The operation that a guard is for: its type, the line that calls it, its name in a graph of TensorFlow 1.

    through_where: its bad value came back through the gradient of a branch that was not chosen.
    """

    op_type: str
    file: str = ""
    line: int = 0
    op_name: str = ""
    through_where: bool = False


@dataclass(frozen=True)
class Treatment:
    """What one run shall try. steps: training steps until it ends. report: a file, made by who asks, that takes what
    the recorder tells. place is None but for guards.
    """

    remedy: str
    value: str = ""
    steps: int = 200
    report: str = ""
    place: Place | None = None

    @property
    def label(self) -> str:
        """Name of the run: "lower_learning_rate_0.1"."""
        return "_".join(part for part in (self.remedy, self.value.replace(":", "_")) if part)

    def as_json(self) -> str:
        """The text for the environment."""
        told: dict[str, Any] = {"remedy": self.remedy, "value": self.value, "steps": self.steps, "label": self.label}
        told |= {"report": self.report} if self.report else {}
        if self.place is not None:
            told["place"] = vars(self.place)
        return json.dumps(told)


def check(remedy: str, value: str) -> None:
    """Raises UsageError for a remedy that cannot be tried like this; it lists what can."""
    if remedy not in DOSES:
        raise UsageError(f"unknown remedy {remedy!r}; there is {', '.join(DOSES)}")
    if remedy not in VALUES:
        if value:
            raise UsageError(f"{remedy} takes no value, and got {value!r}")
        return
    kind, _, number = value.partition(":")
    fits = {
        "lower_learning_rate": _number(value) < 1,
        "clip_gradients": kind in ("norm", "value") and math.isfinite(_number(number)),
    }.get(remedy, value in DOSES[remedy])
    if not fits:
        raise UsageError(f"{remedy} takes {VALUES[remedy]}, not {value!r}")


def parse(text: str) -> Treatment:
    """A treatment from the environment. Raises UsageError that names the field that does not fit."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"it is not JSON: {str(error)[:80]}") from error
    if not isinstance(told, dict):
        raise UsageError("it is no JSON object")
    remedy, value = _text(told, "remedy", 80), _text(told, "value", 40)
    if remedy != CONTROL:
        check(remedy, value)
    elif value:
        raise UsageError("the control takes no value")
    steps = told.get("steps")
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= MOST_STEPS:
        raise UsageError("steps must be a whole number of at least 1")
    report = _text(told, "report", LONGEST)
    if report and not (Path(report).is_absolute() and Path(report).is_file()):
        raise UsageError("report must be an existing file, by its absolute path")
    place = _place(told["place"]) if told.get("place") is not None else None
    if remedy in GUARDS and place is None:
        raise UsageError(f"{remedy} needs the place of an operation")
    treatment = Treatment(remedy, value, steps, report, place)
    if told.get("label", treatment.label) != treatment.label:
        raise UsageError(f"label must be {treatment.label}")
    return treatment


def _place(told: Any) -> Place:
    if not isinstance(told, dict):
        raise UsageError("place must be a JSON object")
    op_type, line = _text(told, "op_type", 80), told.get("line", 0)
    if not re.fullmatch(r"[A-Za-z]\w*", op_type, re.ASCII):
        raise UsageError("place.op_type must be the type of an operation, such as Log")
    if isinstance(line, bool) or not isinstance(line, int) or line < 0:
        raise UsageError("place.line must be a whole number")
    return Place(
        op_type, _text(told, "file", LONGEST), line, _text(told, "op_name", LONGEST), told.get("through_where") is True
    )


def _text(told: Mapping[str, Any], name: str, longest: int) -> str:
    value = told.get(name, "")
    if not isinstance(value, str) or len(value) > longest or "\0" in value:
        raise UsageError(f"{name} must be a text of at most {longest} characters")
    return value


def _number(text: str) -> float:
    """A positive number; infinity for anything else."""
    try:
        number = float(text) if re.fullmatch(r"[0-9.e+-]{1,30}", text, re.ASCII) else math.inf
    except ValueError:
        return math.inf
    return number if number > 0 else math.inf
