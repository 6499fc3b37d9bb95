"""What an incident makes the recorder say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tb_nanwatch.format.records import Counts, Incident, Origin, Source
from tb_nanwatch.record import console

LIBRARY = Source("/lib/site-packages/tensorflow/math_ops.py", 2302, "reduce_sum")


def incident(origin: Origin, **replay: object) -> Incident:
    return Incident(0, 1026, 1026, origin, replay_json=json.dumps(replay))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            incident(Origin("loss", op_type="Log", source=Source("/me/train.py", 34, "step"))),
            "first Log at train.py:34 (step), phase loss",
        ),
        (
            incident(
                Origin("loss", op_type="Sum", source=LIBRARY),
                library={"file": "/me/train.py", "line": 60, "function": "main"},
            ),
            "first Sum called from train.py:60 (main), phase loss",
        ),
        (
            incident(Origin("loss", op_type="Sum", source=LIBRARY)),
            "first Sum at math_ops.py:2302 (reduce_sum), phase loss",
        ),
        (
            incident(Origin("input", "", "x", "input", op_type="MatMul", source=LIBRARY, output=Counts(nan=1, size=8))),
            "first in the input x (1 of 8 elements), phase input",
        ),
        (
            incident(Origin("forward", "dense", "dense/output", "activation")),
            "first in the output of dense, phase forward",
        ),
    ],
)
def test_sentence(given: Incident, said: str) -> None:
    assert console.sentence(given) == f"step 1,026 is not finite: {said}"


def test_what_the_training_waits_for() -> None:
    given = incident(Origin("forward", "dense", "dense/output", "activation"))
    said = "step 1,026 is not finite; replaying 40 steps and trying remedies, for up to 60 s ..."
    assert console.pause(given, 40, 60.0) == said
    assert console.pause(given, 1, 0) == "step 1,026 is not finite; replaying 1 step ..."


def test_the_next_step_can_be_pasted() -> None:
    given = incident(Origin("forward", "dense", "dense/output", "activation"))
    assert console.with_next_step(given, Path("my logs/run1")).endswith(
        ", phase forward; see: nanwatch report 'my logs/run1'"
    )
