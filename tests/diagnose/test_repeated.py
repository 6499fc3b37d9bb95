"""The same fault again and again, and updates that loss scaling skipped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import runs
from operations import INF, examined, operand

from tb_nanwatch.format.records import Counts, Incident, Origin, Source, Spread, TensorInfo

MUL = Origin(
    "forward",
    "square",
    "square/output",
    "activation",
    op_type="Mul",
    source=Source("/home/me/train.py", 34, "step", "t * t"),
    precision="op",
    inputs=(operand("t", 0, 300, "float16"), operand("t", 0, 300, "float16")),
    output=INF,
)
BY_LAYER = replace(MUL, op_type="", source=None, inputs=())


def flash(number: int, at: int, origin: Origin = MUL, recovered: bool = True) -> Incident:
    return Incident(number, at, at, origin, last_step=at if recovered else None, recovered=recovered)


def told(logdir: Path, *events: Incident) -> list[str]:
    runs.write(logdir, steps=range(150), events=events)
    return list(examined(logdir).verdict.paragraphs)


def test_one_fault_is_told_once(tmp_path: Path) -> None:
    said = told(tmp_path, flash(0, 20), flash(1, 60), flash(2, 100), flash(3, 120))
    assert said[-1] == "The same happened at steps 60, 100 and 120; it recovered there, too."
    assert len([text for text in said if "made the first bad value" in text]) == 1


def test_another_line_and_an_incident_that_lasts_are_told(tmp_path: Path) -> None:
    elsewhere = replace(MUL, source=Source("/home/me/train.py", 35, "step", "t * t"))
    said = told(tmp_path, flash(0, 20), flash(1, 60, elsewhere), flash(2, 100, recovered=False))
    assert len([text for text in said if "made the first bad value" in text]) == 3
    assert not [text for text in said if "The same happened" in text]


def test_where_no_op_is_known_nothing_is_called_the_same(tmp_path: Path) -> None:
    said = told(tmp_path, flash(0, 20, BY_LAYER), flash(1, 60, BY_LAYER))
    assert not [text for text in said if "The same happened" in text]


def scaled(logdir: Path, origin_reaches: tuple[Spread, ...] = ()) -> str:
    loss = TensorInfo(0, "loss", "loss", shape=())
    scale = TensorInfo(1, "scalar", "loss_scale", shape=())
    event = replace(flash(0, 20), spread=origin_reaches)
    runs.write(
        logdir, lambda info, step: 512.0 if step < 20 else 256.0, steps=range(40), infos=[loss, scale], events=[event]
    )
    return " ".join(examined(logdir).verdict.paragraphs)


def test_a_skipped_update_is_said_to_be_harmless(tmp_path: Path) -> None:
    assert "Loss scaling skipped the update of that step: the weights took no harm." in scaled(tmp_path)


def test_weights_that_were_reached_are_harmed(tmp_path: Path) -> None:
    reached = Spread(1, 20, "weights", "dense/kernel", "weight", Counts(nan=1, size=4))
    assert "Loss scaling" not in scaled(tmp_path, (reached,))
