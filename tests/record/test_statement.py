"""A statement over several lines is told whole; a line of its own as it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from recorded import only_run

import tb_nanwatch as nanwatch
from tb_nanwatch.diagnose import examine
from tb_nanwatch.record.replay.statement import written

PROGRAM = """\
x = 'one line'  # as it is
loss = tf.reduce_mean(
    tf.math.log(
        p  # of a class
    )
)
with a as b, c(
    d
):
    pass
first = 1; second = f(
    2)
long = [
    1,
    g(3,
      4),
    5,
    6,
    7,
    8,
]
def h(): return (1 /
    0)
"""


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (1, "x = 'one line'  # as it is"),
        *((n, "loss = tf.reduce_mean(tf.math.log(p))") for n in range(2, 7)),
        (7, "c(d)"),
        (10, "pass"),
        (11, "second = f(2)"),
        (13, "long = ["),
        (15, "g(3, 4)"),
        (16, "g(3, 4)"),
        (17, "5,"),
        (22, "return 1 / 0"),
        (99, ""),
    ],
)
def test_of_a_program(line: int, text: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    assert written(str(program), line) == text


def test_of_what_is_no_program(tmp_path: Path) -> None:
    cell = tmp_path / "cell.py"
    cell.write_text("%matplotlib inline\ny = f(\n    x)\n", encoding="utf-8")
    assert [written(str(cell), n) for n in (1, 2)] == ["%matplotlib inline", "y = f("]
    assert written(str(tmp_path / "none.py"), 1) == ""


def test_in_the_report(tmp_path: Path) -> None:
    weights = tf.Variable(tf.ones([3]), name="w")

    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                tf.math.log(
                    x * weights,
                )
            )
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return loss

    with nanwatch.watch(train, tmp_path, variables=[weights]) as step:
        step(tf.ones([3]))
        step(tf.constant(np.array([1, -1, 1], np.float32)))
    found = examine(only_run(tmp_path))
    code = "loss = tf.reduce_mean(tf.math.log(x * weights))"
    assert found.entry["incidents"][0]["origin"]["source"]["code"] == code
    assert f": `{code}`." in found.verdict.paragraphs[0]
    guarded = "loss = tf.reduce_mean(tf.math.log(tf.clip_by_value(x * weights, "
    assert guarded in str(found.entry["incidents"][0]["remedies"])
