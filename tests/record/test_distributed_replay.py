"""Replays of incidents under MirroredStrategy: the op, the sample in the guilty replica's part, its capsule, trials."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from recorded import only_run, values
from test_distribution import start

from tb_nanwatch.read import capsule
from tb_nanwatch.record import distribution
from tb_nanwatch.record.replay import memory, remedies

HERE = Path(__file__).parent
BAD_STEP, BAD_SAMPLE, HALF, STEPS = 9, 2, 8, 18
FAULTS = ["none", "sample", "input", "growth"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bool]]:
    folder = tmp_path_factory.mktemp("mirrored_fit")
    done = start("mirrored_fit.py", str(folder), *FAULTS)
    return folder, json.loads(done.stdout.splitlines()[-1])


def incident(trained: Any, fault: str) -> tuple[Any, dict[str, Any]]:
    """The first incident, and what its replay says."""
    first = only_run(trained[0] / fault).incidents[0]
    return first, json.loads(first.replay_json)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fit_is_bit_identical(trained: Any, fault: str) -> None:
    assert trained[1][fault]


def test_nothing_is_reported_of_a_finite_fit(trained: Any) -> None:
    run = only_run(trained[0] / "none")
    assert run.incidents == ()
    assert run.steps == STEPS


def test_the_op_and_the_sample_of_a_replica_are_named(trained: Any) -> None:
    first, replay = incident(trained, "sample")
    origin = first.origin
    assert first.first_step == BAD_STEP
    assert (origin.phase, origin.layer, origin.op_type, origin.precision) == ("forward", "fading", "Log", "op")
    assert "tf.math.log(1.0 - 2.0 * rows" in origin.source.code
    assert (origin.replica, origin.samples) == (1, (BAD_SAMPLE,))
    (operand,) = origin.inputs
    assert (operand.shape, operand.min, operand.negative) == ((HALF, 1), -1, 1)
    assert replay["fed_by"]["variables"] == ["fading/calls", "hidden/bias", "hidden/kernel"]
    assert replay["fed_by"]["inputs"] == ["x"]


def test_remedies_are_tried_in_all_replicas(trained: Any) -> None:
    _, replay = incident(trained, "sample")
    outcomes = {(t["remedy"], t["note"]): (t["outcome"], t["control"]) for t in replay["trials"]}
    assert outcomes["clip_predictions_or_from_logits", "log(max(x, 1e-10))"] == ("finite", "nonfinite")
    assert outcomes["lower_learning_rate", "learning rate times 0.1"] == ("nonfinite", "nonfinite")
    _, replay = incident(trained, "input")
    (cleaned,) = replay["trials"]
    assert (cleaned["remedy"], cleaned["outcome"], cleaned["control"]) == ("clean_input", "finite", "nonfinite")


def test_a_bad_input_is_found_in_the_part_of_its_replica(trained: Any) -> None:
    first, replay = incident(trained, "input")
    origin = first.origin
    assert first.first_step == BAD_STEP - 6
    assert (origin.phase, origin.tensor, origin.replica, origin.samples) == ("input", "x", 1, (BAD_SAMPLE,))
    assert (replay["element"], replay["features"]) == ("x", [[3]])
    assert origin.output.nan == 1


def test_no_replica_is_blamed_where_all_go_wrong(trained: Any) -> None:
    first, replay = incident(trained, "growth")
    assert first.origin.replica == -1
    assert (first.origin.op_type, first.origin.precision) == ("Square", "op")
    assert len(first.origin.samples) == HALF
    assert "clean_input" not in {t["remedy"] for t in replay["trials"]}


def test_the_capsule_holds_the_part_of_the_guilty_replica(trained: Any) -> None:
    first, _ = incident(trained, "input")
    kept = capsule.load(trained[0] / "input" / first.capsule).capsule
    x, y, *_ = kept.batch.items
    assert (x.name, x.kind, x.shape) == ("x", "array", (HALF, 5))
    assert (y.name, y.kind, y.shape) == ("y", "array", (HALF, 1))
    names = [about.name for about in kept.state]
    assert "hidden/kernel" in names
    assert "adam/sequential_hidden_kernel_momentum" in names
    assert not [name for name in names if "replica" in name]
    assert kept.left_out == ()


def test_steps_before_an_incident_are_read_whole(trained: Any) -> None:
    run = only_run(trained[0] / "sample")
    assert set(values(run, "gradient/out/kernel", "max_abs")) >= set(range(BAD_STEP + 1))
    assert set(values(run, "weight/out/kernel", "mean")) >= set(range(BAD_STEP + 1))


# ------------------------------------------------------------ batches that are split


def split(*parts: Any) -> Any:
    from tensorflow.python.distribute.values import PerReplica

    return PerReplica([tf.constant(part, tf.float32) for part in parts])


def test_parts_of_a_batch_are_taken_and_changed() -> None:
    whole = tf.constant(7.0)
    data = (split([[1.0], [2.0]], [[3.0], [400.0]]), whole)
    assert distribution.part(data, 1)[0].numpy().tolist() == [[3.0], [400.0]]
    assert distribution.part(data, 1)[1] is whole
    assert distribution.part(data, -1) is data
    assert len(distribution.parts(data)) == 2
    assert distribution.parts((whole,)) == [(whole,)]
    assert memory._bytes(data) == 5 * 4

    picked = remedies.pick(data, [1, 1], replica=1)
    assert [v.numpy().ravel().tolist() for v in picked[0].values] == [[1.0, 2.0], [400.0, 400.0]]
    assert picked[1] is whole
    scaled = remedies.scale_inputs(data, ["x", "y"])
    assert scaled is not None
    assert scaled.setting == "scale x"
    (x, y) = scaled.batch(data)
    np.testing.assert_allclose(x.values[0].numpy().ravel(), [1 / 400, 2 / 400])
    np.testing.assert_allclose(x.values[1].numpy().ravel(), [3 / 400, 1])
    assert float(y) == 7
