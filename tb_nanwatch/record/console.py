"""What an incident makes the recorder say, on the console and in NonFiniteError."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Final

from tb_nanwatch.format.records import Incident, Origin, Source
from tb_nanwatch.record.replay.source import is_users

WHERE: Final = {
    "gradient": "the gradient of ",
    "applied": "the gradient applied to ",
    "weight": "the weight ",
    "activation": "the output of ",
}


def sentence(incident: Incident) -> str:
    """One line: the step, where the first bad value was, and the phase."""
    origin = incident.origin
    return f"step {incident.first_step:,} is not finite: first {_place(incident)}, phase {origin.phase}"


def pause(incident: Incident, steps: int, seconds: float) -> str:
    """One line on what the training waits for now: `steps` that run again, and `seconds` at most of trying remedies."""
    what = f"replaying {steps:,} step{'s' if steps > 1 else ''}"
    tries = seconds and incident.origin.phase != "metric"
    trying = f" and trying remedies, for up to {seconds:g} s" if tries else ""
    return f"step {incident.first_step:,} is not finite; {what}{trying} ..."


def with_next_step(incident: Incident, logdir: Path) -> str:
    """The same, and how to read on."""
    return f"{sentence(incident)}; see: nanwatch report {shlex.quote(str(logdir))}"


def _place(incident: Incident) -> str:
    origin = incident.origin
    if origin.op_type and origin.source is not None and origin.phase != "input":
        return f"{origin.op_type} {_line(incident)}"
    what = origin.layer if origin.tensor_kind == "activation" else origin.tensor
    return f"in {WHERE.get(origin.tensor_kind, f'the {origin.tensor_kind} ')}{what}{_share(origin)}"


def _line(incident: Incident) -> str:
    """The line of the program; of an op in a library, the line that calls it where the replay knows that."""
    source = incident.origin.source
    assert source is not None
    if not is_users(source.file):
        caller = json.loads(incident.replay_json or "{}").get("library")  # our own replay wrote it
        if caller and is_users(caller["file"]):
            source = Source(caller["file"], caller["line"], caller["function"], "")
            return f"called from {_spot(source)}"
    return f"at {_spot(source)}"


def _spot(source: Source) -> str:
    function = "" if source.function == "<module>" else f" ({source.function})"
    return f"{Path(source.file).name}:{source.line}{function}"


def _share(origin: Origin) -> str:
    return f" ({origin.output.bad:,} of {origin.output.size:,} elements)" if origin.output.bad else ""
