"""Columns unlike the others: told at incidents that they explain, warned of where they reach the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import runs
from operations import INF, NAN, examined, first, operand
from sklearn.datasets import load_wine

import tb_nanwatch as nanwatch
from tb_nanwatch.diagnose import PostMortem, columns
from tb_nanwatch.format.records import (
    BatchPart,
    Column,
    Counts,
    FirstBatches,
    FullBlock,
    Incident,
    OperandStats,
    Origin,
)
from tb_nanwatch.record.writer import RunWriter

STAMP = Column(7, 0.0, 2.1e6, 4.5e5, 3e5)
CONSTANT = (Column(3, 1.5, 1.5, 1.5), Column(9, 0.0, 0.0))
TABLE = BatchPart("x", "float32", (32, 13), 96, 13, 52.5, (STAMP,), CONSTANT, 1, 2)
MILD = replace(TABLE, extreme=(Column(12, 278.0, 1680.0),), typical=3.0, constant=(), constant_count=0)
SEEN = "the input x: column 7 ranges from 0 to 2.1e6, 40,000 times the median column; columns 3 and 9 never change"


def at(
    logdir: Path, part: BatchPart, op: str, inputs: Sequence[OperandStats], output: Counts = INF, **more: Any
) -> PostMortem:
    """Of a run that is given `part`, and goes bad at step 10 in `op`."""
    given: dict[str, Any] = {"op_type": op, "precision": "op", "inputs": tuple(inputs), "output": output}
    origin = Origin("forward", "dense", "dense/output", "activation", "Dense", **given)
    event = Incident(0, 10, 10, origin, replay_json='{"replay": "reproduced"}')
    runs.write(logdir, events=[FirstBatches(2, 3, (part,)), event], **more)
    return examined(logdir)


def test_in_words() -> None:
    assert columns.told(TABLE) == SEEN
    pictures = replace(TABLE, shape=(8, 32, 32, 4), extreme=(replace(STAMP, index=3),), constant=())
    assert columns.told(pictures).endswith("channel 3 ranges from 0 to 2.1e6, 40,000 times the median channel")
    many = replace(TABLE, extreme=(STAMP,) * 5, extreme_count=9, constant=CONSTANT[:1], constant_count=1)
    assert columns.told(many).endswith("; 6 more are as odd; column 3 never changes")
    always = replace(TABLE, extreme=(replace(STAMP, min=2.1e6),), constant=())
    assert columns.told(always).endswith("column 7 is 2.1e6 throughout, 40,000 times the median column")


def test_numbers_that_ran_out_behind_an_extreme_column(tmp_path: Path) -> None:
    found = first(at(tmp_path, TABLE, "MatMul", [operand("h", -1e19, 2e20), operand("k", -1e20, 1)]))
    assert (found["cause"]["name"], found["cause"]["confidence"]) == ("input_extreme_scale", 0.92)
    assert found["cause"]["evidence"] == [SEEN]
    assert found["remedies"][0]["name"] == "clean_input"
    assert found["remedies"][0]["snippet"].splitlines() == [
        "scale = np.ones(13, np.float32)",
        "scale[[7]] = 2.1e+06  # the largest value of each column that is so large",
        "dataset = dataset.map(lambda x: x / scale)",
    ]


def test_a_mild_column_is_a_suspect(tmp_path: Path) -> None:
    found = first(at(tmp_path, MILD, "MatMul", [operand("h", -1e19, 2e20), operand("k", -1e20, 1)]))
    assert found["cause"]["name"] == "growth_overflow"
    assert [c["name"] for c in found["other_causes"]] == ["input_extreme_scale"]
    assert "column 12 ranges from 278 to 1,680, 560 times the median column" in found["other_causes"][0]["evidence"][0]


def test_a_column_says_nothing_of_a_fault_elsewhere(tmp_path: Path) -> None:
    found = first(at(tmp_path, MILD, "Acos", [operand("Sum", -0.5, 1.01)], NAN))
    assert not [c for c in found["other_causes"] if c["name"] == "input_extreme_scale"]


def test_a_deviation_of_zero(tmp_path: Path) -> None:
    below = operand("Sqrt", 0, 3, shape=(13,), zero=2)
    found = first(at(tmp_path, TABLE, "RealDiv", [operand("Sub", -1, 1, zero=64), below], NAN))
    assert found["cause"]["name"] == "division_by_zero"
    assert "columns 3 and 9 never change in the input x: their deviation is 0" in found["cause"]["evidence"]


# ---------------------------------------------------------------- a warning


def warned(logdir: Path, part: BatchPart, largest: float, activation: str = "relu") -> list[dict[str, Any]]:
    """Findings of a healthy run whose first layer puts out numbers up to `largest`."""
    infos = [replace(i, activation=activation) if i.kind == "activation" else i for i in runs.network()]
    runs.write(logdir, infos=infos, events=[FirstBatches(2, 3, (part,))], steps=range(0), close=False)
    header = replace(examined(logdir).run.header, writer_id="w1")
    writer = RunWriter(logdir, header)
    writer.declare(infos)
    number = next(i.id for i in infos if i.kind == "activation")
    size = np.array([[largest]])
    share = np.zeros((1, 1), np.float32)
    writer.full(FullBlock(np.array([0]), np.array([number]), size, share, share, share))
    writer.close()
    found: list[dict[str, Any]] = examined(logdir).entry["findings"]
    return found


def test_a_column_that_reaches_the_network(tmp_path: Path) -> None:
    (found,) = warned(tmp_path, TABLE, 3e5)
    assert (found["rule"], found["tensor"], found["kind"]) == ("input_extreme_scale", "x", "input")
    assert found["evidence"] == [
        SEEN,
        "the output of dense reaches 299,967 in the first steps",
    ]  # as magnitudes are stored


def test_a_layer_that_is_driven_to_its_bounds(tmp_path: Path) -> None:
    assert [f["rule"] for f in warned(tmp_path, TABLE, 1.0, "tanh")] == ["input_extreme_scale"]


def test_an_incident_tells_it_itself(tmp_path: Path) -> None:
    found = at(tmp_path, TABLE, "MatMul", [operand("h", -1e19, 2e20), operand("k", -1e20, 1)])
    assert found.entry["findings"] == []


@pytest.mark.parametrize(("part", "largest"), [(TABLE, 3.0), (MILD, 3e5)], ids=["normalized", "ordinary"])
def test_no_warning(part: BatchPart, largest: float, tmp_path: Path) -> None:
    assert warned(tmp_path, part, largest) == []


# ---------------------------------------------------------------- real runs


def fit(logdir: Path, scale: float, rate: float, normalize: bool = False, seconds: int = 0) -> dict[str, Any]:
    """The report on a training on wines, whose last column is multiplied."""
    x, y = load_wine(return_X_y=True)
    x = x.astype(np.float32)
    x[:, 12] *= scale
    keras.utils.set_random_seed(0)
    first_layer = keras.layers.Normalization()
    first_layer.adapt(x)
    layers = [keras.layers.Dense(16, "relu"), keras.layers.Dense(3)]
    model = keras.Sequential([keras.Input((13,)), *([first_layer] if normalize else []), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(rate), loss, jit_compile=False)
    callback = nanwatch.NanWatch(logdir, trial_seconds=seconds)
    model.fit(x, y, batch_size=32, epochs=4, verbose=0, callbacks=[callback])
    callback.close()
    return examined(logdir).entry


def test_wines_as_they_are_train_well(tmp_path: Path) -> None:
    assert fit(tmp_path, 1, 1e-5)["findings"] == []


def test_a_column_in_other_units(tmp_path: Path) -> None:
    (found,) = fit(tmp_path / "raw", 1e4, 1e-12)["findings"]
    assert found["rule"] == "input_extreme_scale"
    assert "column 12 ranges from" in found["evidence"][0]
    assert fit(tmp_path / "normalized", 1e4, 0.01, normalize=True)["findings"] == []


def test_a_column_in_other_units_that_overflows(tmp_path: Path) -> None:
    report = fit(tmp_path, 1e12, 10.0, seconds=60)
    cause = report["incidents"][0]["cause"]
    assert cause["name"] == "input_extreme_scale"
    assert "column 12 ranges from" in cause["evidence"][0]
    assert report["incidents"][0]["remedies"][0]["name"] == "clean_input"
    (cleaned, *_) = report["incidents"][0]["remedies"]
    assert (cleaned["trial"]["setting"], cleaned["trial"]["control"]) == ("scale columns of x", "nonfinite")
    assert "12 of its columns only" in cleaned["trial"]["note"]
    assert "scale[[12]] = 1.68e+15" in cleaned["snippet"] or "scale[[12]] = 1.5" in cleaned["snippet"]
