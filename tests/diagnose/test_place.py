"""Headlines and first sentences where the operation is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import runs
from operations import INF, MINUS_INF, NAN, examined, operand, post_mortem

LIBRARY = "/usr/lib/python3.12/site-packages/tensorflow/python/ops/math_ops.py"
CALLER = {"file": "/home/me/fit.py", "line": 35, "function": "main"}


@pytest.mark.parametrize(
    ("given", "headline"),
    [
        (
            {"op_type": "SqrtGrad", "phase": "backward", "replay": {"forward_op": "Sqrt"}},
            "Blew up at step 10: the gradient of `Sqrt` at train.py:34 (train_step) was NaN",
        ),
        ({"op_type": "Exp", "output": INF}, "Blew up at step 10: `Exp` at train.py:34 (train_step) was +Inf"),
        (
            {"op_type": "MatMul", "phase": "forward", "file": LIBRARY, "layer": "hidden_4"},
            "Blew up at step 10: `MatMul` in layer hidden_4 was NaN",
        ),
        ({"op_type": "Square", "file": LIBRARY}, "Blew up at step 10: `Square` was NaN"),
        (
            {"op_type": "Square", "file": LIBRARY, "replay": {"library": CALLER}},
            "Blew up at step 10: `Square` called from fit.py:35 was NaN",
        ),
        (
            {"op_type": "MatMul", "phase": "forward", "file": LIBRARY, "layer": "h", "replay": {"library": CALLER}},
            "Blew up at step 10: `MatMul` in layer h, called from fit.py:35, was NaN",
        ),
        (
            {"op_type": "Square", "file": LIBRARY, "replay": {"library": {**CALLER, "file": LIBRARY}}},
            "Blew up at step 10: `Square` was NaN",
        ),
        (
            {"op_type": "Log", "inputs": [operand("p", 0, 1, zero=3)], "output": MINUS_INF},
            "Blew up at step 10: `Log` at train.py:34 (train_step) was -Inf, because of a logarithm of zero or less",
        ),
        (
            {"op_type": "Log", "phase": "backward", "replay": {"through_where": True}},
            "Blew up at step 10: `Log` at train.py:34 (train_step) made NaN that the gradient brought back",
        ),
        (
            {"op_type": "AssignAddVariableOp", "phase": "update"},
            "Blew up at step 10: the optimizer's `AssignAddVariableOp` at train.py:34 (train_step) was NaN",
        ),
        (
            {"op_type": "Exp", "output": INF, "function": "<module>"},
            "Blew up at step 10: `Exp` at train.py:34 was +Inf",
        ),
        (
            {"op_type": "Log", "file": "C:\\code\\my train.py"},
            "Blew up at step 10: `Log` at my train.py:34 (train_step) was NaN",
        ),
    ],
)
def test_headline(given: dict[str, Any], headline: str, tmp_path: Path) -> None:
    assert post_mortem(tmp_path, **given).verdict.headline == headline


def beginning(logdir: Path, **given: Any) -> str:
    return post_mortem(logdir, **given).verdict.paragraphs[0]


def test_line_operands_and_samples(tmp_path: Path) -> None:
    inputs = [operand("p", 0, 1, zero=3), operand("input 1", 0, 1, "int32", (2,))]
    said = beginning(tmp_path, op_type="Log", inputs=inputs, code="loss = tf.math.log(p)", samples=(3, 9))
    assert said == (
        "At step 10, after the layers, `Log` made the first bad value: 2 of 64 elements NaN. "
        "The line is /home/me/train.py:34: `loss = tf.math.log(p)`. "
        "It was given p (float32, 128 elements from 0 to 1, 3 zeros). "
        "The outputs of the layers were finite. "  # the recorded loss was, too
        "In the batch it was samples 3 and 9."
    )


def test_a_line_of_a_library(tmp_path: Path) -> None:
    said = beginning(tmp_path, op_type="MatMul", file=LIBRARY, code="return gen_math_ops.mat_mul(")
    assert "No line of your own program computes it; in the library it is python/ops/math_ops.py:34" in said


def test_the_line_that_calls_the_library(tmp_path: Path) -> None:
    said = beginning(tmp_path, op_type="MatMul", file=LIBRARY, code="return mat_mul(", replay={"library": CALLER})
    assert (
        "/home/me/fit.py:35 calls the library that computes it, at python/ops/math_ops.py:34: `return mat_mul(`" in said
    )


@pytest.mark.parametrize(
    ("replay", "said"),
    [
        ({"replay": "not reproduced", "why": "it was finite"}, "The replay did not reproduce it: it was finite."),
        ({"replay": "not possible", "why": "no\nstate"}, "It could not be replayed: no\\nstate."),
        ({"replay": "failed", "why": "ValueError"}, "The replay failed: ValueError."),
        ({"replay": "reproduced under XLA only"}, "Run op by op the step is finite: only XLA computes it so."),
        ({"replay": "refused"}, "the operation refuses its input with an error"),
    ],
)
def test_how_the_replay_went(replay: dict[str, str], said: str, tmp_path: Path) -> None:
    found = post_mortem(tmp_path, "", replay=replay, output=NAN)
    assert said in found.verdict.paragraphs[0]
    assert found.entry["incidents"][0]["replay"]["outcome"] == replay["replay"]


def test_nothing_is_said_of_a_replay_that_went_well(tmp_path: Path) -> None:
    assert "replay" not in beginning(tmp_path, op_type="Log").lower()


def test_an_op_that_fails_for_all_samples_lists_none(tmp_path: Path) -> None:
    samples = tuple(range(32))
    assert "In the batch it was all 32 samples." in beginning(
        tmp_path / "all", op_type="RealDiv", inputs=[operand("x", 0, 1)], samples=samples
    )
    said = beginning(tmp_path / "some", op_type="RealDiv", inputs=[operand("x", 0, 1)], samples=samples[:31])
    assert "In the batch it was samples 0, 1, 2, 3, 4, 5, 6, 7 and 23 more." in said
    rows = [operand("row", 0, 1, shape=(2, 32))]
    said = beginning(tmp_path / "rows", op_type="RealDiv", inputs=rows, samples=(1, 6))
    assert "In the batch it was samples 1 and 6." in said


def test_a_graph_of_tensorflow_1_has_no_end_of_the_layers(tmp_path: Path) -> None:
    said = beginning(tmp_path / "graph", op_type="RealDiv", entry_point="watch_session")
    assert "At step 10, on the way from the feeds to the loss, `RealDiv` made the first bad value" in said
    assert "outputs of the layers" not in said
    other = beginning(tmp_path / "fit", op_type="RealDiv")
    assert "At step 10, after the layers," in other
    assert "The outputs of the layers were finite" in other


def test_weights_that_came_bad_were_made_in_no_step(tmp_path: Path) -> None:
    said = beginning(tmp_path, op_type="", phase="weights", at=0, replay={"replay": "not reproduced", "why": "x" * 400})
    assert "replay" not in said
    assert "look at what was loaded" in said


def test_the_words_of_a_replay_are_not_cut_in_the_middle(tmp_path: Path) -> None:
    why = "the step was finite when it ran op by op; as it was compiled it fails again: only the compiled kernels do"
    assert f"{why}. So" in beginning(tmp_path, op_type="", replay={"replay": "not reproduced", "why": why})


def test_a_run_of_which_nothing_could_be_read_says_so(tmp_path: Path) -> None:
    runs.write(tmp_path, steps=range(0))
    (file,) = tmp_path.glob("events*")
    file.write_bytes(b"\0" * 999)
    assert examined(tmp_path).verdict.headline.startswith("Nothing readable: ")
