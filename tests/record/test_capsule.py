"""Capsules of real trainings: what is kept, that it is the state right before the step, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from recorded import only_run

import tb_nanwatch as nanwatch
from tb_nanwatch.errors import CorruptData, NanWatchError
from tb_nanwatch.format.capsule import Kept, Opened
from tb_nanwatch.read.capsule import load
from tb_nanwatch.record.replay import again, batch
from tb_nanwatch.record.replay.capsule import _fitting

BAD_STEP, SIZE = 5, 8
Recorded = tuple[Path, Any, list[dict[str, Any]]]


def log_loss(y: Any, p: Any) -> Any:
    return -tf.reduce_mean(y * tf.math.log(p), axis=-1)  # the line of the fault


class _States(keras.callbacks.Callback):  # type: ignore[misc]
    """Weights and optimizer after every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.after: list[dict[str, Any]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        variables = [*self.model.weights, *self.model.optimizer.variables]
        self.after.append({v.path: keras.ops.convert_to_numpy(v).copy() for v in variables})


def fit(logdir: Path) -> tuple[Any, list[dict[str, Any]]]:
    """A fit whose fifth step takes the logarithm of 0 for sample 4; x, and the variables after every step."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(5, activation="relu", name="a"),
            layers.Dense(1, activation="sigmoid", name="b"),
        ]
    )
    kernel, bias = model.layers[-1].get_weights()
    model.layers[-1].set_weights([-np.abs(kernel), bias])
    model.compile(keras.optimizers.Adam(1e-2), log_loss, jit_compile=False)
    x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    x[BAD_STEP * SIZE + 4] = -1e6
    watched = nanwatch.NanWatch(logdir, trial_seconds=0)
    states = _States()
    model.fit(x, np.ones((64, 1), np.float32), SIZE, shuffle=False, verbose=0, callbacks=[watched, states])
    watched.close()
    return x, states.after


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A recorded fit for those who only look: its logdir, x, and the variables after every step."""
    logdir = tmp_path_factory.mktemp("fit")
    return (logdir, *fit(logdir))


def only_capsule(logdir: Path) -> Opened:
    incident = only_run(logdir).incidents[0]
    assert incident.capsule == f"plugins/nanwatch/step_{incident.first_step}"
    return load(logdir / incident.capsule)


def read(opened: Opened) -> dict[str, Any]:
    assert opened.state is not None
    return {k.name: batch.numpy_of(opened.state.read(k.array, k.dtype, k.shape), k.dtype) for k in opened.capsule.state}


def test_it_holds_the_batch_and_the_state_right_before_the_step(recorded: Recorded) -> None:
    logdir, x, after = recorded
    opened = only_capsule(logdir)
    capsule = opened.capsule
    assert (capsule.step, capsule.origin.op_type, capsule.origin.samples) == (BAD_STEP, "Log", (4,))
    assert capsule.last_finite_step == BAD_STEP - 1
    assert capsule.entry_point == "keras_fit"
    assert opened.batch is not None
    given, targets = batch.together(capsule.batch, opened.batch.read)
    assert given.numpy().tolist() == x[BAD_STEP * SIZE : (BAD_STEP + 1) * SIZE].tolist()
    assert targets.numpy().tolist() == [[1.0]] * SIZE
    state, before = read(opened), after[BAD_STEP - 1]
    assert {k.name for k in capsule.state if k.watched} == {"a/kernel", "a/bias", "b/kernel", "b/bias"}
    for name in ("a/kernel", "b/bias"):
        path = next(p for p in before if p.endswith(name))
        assert state[name].tobytes() == before[path].tobytes()
    momentum = next(p for p in before if p.endswith("a_kernel_momentum"))
    assert state[momentum].tobytes() == before[momentum].tobytes()
    assert state["adam/iteration"] == BAD_STEP
    assert not any("nanwatch" in name or name.startswith("variable ") for name in state)


def test_it_shows_the_users_lines(recorded: Recorded) -> None:
    (first, *_) = only_capsule(recorded[0]).capsule.source
    assert first.file == __file__
    assert "the line of the fault" in first.lines[first.line - first.first]
    assert len(first.lines) > 4


def test_the_way_back_to_the_data(recorded: Recorded) -> None:
    fed = json.loads(only_run(recorded[0]).incidents[0].replay_json)["fed_by"]
    assert fed["inputs"] == ["x"]
    assert fed["layers"] == ["b", "a"]
    assert set(fed["variables"][:2]) == {"b/kernel", "b/bias"}
    assert set(fed["variables"][2:]) == {"a/kernel", "a/bias"}


def test_nothing_of_the_environment_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "hunter2-in-the-environment")
    monkeypatch.setattr("sys.argv", ["train.py", "--token=hunter2-in-argv"])
    fit(tmp_path)
    capsule = tmp_path / only_run(tmp_path).incidents[0].capsule
    assert not [f for f in capsule.iterdir() if b"hunter2-in" in f.read_bytes()]
    assert sorted(f.name for f in capsule.iterdir()) == ["batch.npz", "manifest.json", "state.npz"]
    assert [f.name for f in capsule.parent.iterdir()] == [capsule.name]  # nothing unfinished is left


def test_a_second_attempt_keeps_its_own(tmp_path: Path) -> None:
    fit(tmp_path)
    opened = only_capsule(tmp_path)
    state = tmp_path / "plugins/nanwatch/step_5/state.npz"
    before = state.read_bytes()
    for _ in range(2):  # the run goes on; the count of steps does, too
        fit(tmp_path)
    assert state.read_bytes() == before
    capsules = {i.capsule for i in only_run(tmp_path).incidents}
    assert len(capsules) == 3
    assert all(load(tmp_path / c).capsule.origin == opened.capsule.origin for c in capsules)


def test_a_nested_batch_names_the_element_and_the_features(tmp_path: Path) -> None:
    w = tf.Variable(tf.ones([3, 1]), name="w")

    @tf.function
    def step(features: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((features["num"] @ w - labels) ** 2) + tf.reduce_sum(features["ids"]) * 0.0
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss

    with nanwatch.watch(step, tmp_path, variables=[w]) as watched:
        for number in range(4):
            x = np.ones([2, 3], np.float32)
            if number == 2:
                x[1, 2] = np.nan
            watched({"num": tf.constant(x), "ids": tf.ones([2])}, labels=tf.zeros([2, 1]))
    opened = only_capsule(tmp_path)
    replay = opened.capsule.replay
    assert replay["element"] == "features/num"
    assert replay["features"] == [[2]]
    assert opened.capsule.origin.phase == "input"
    assert opened.capsule.origin.samples == (1,)
    assert [part.name for part in opened.capsule.batch.leaves()] == ["features/num", "features/ids", "labels"]
    assert opened.batch is not None
    (features,), by_name = batch.together(opened.capsule.batch, opened.batch.read)
    assert np.isnan(features["num"].numpy()).tolist() == [[False] * 3, [False, False, True]]
    assert by_name["labels"].shape == (2, 1)
    assert read(opened)["w"].shape == (3, 1)


@pytest.mark.parametrize(
    "value",
    [
        tf.constant([1.0, float("inf")], tf.bfloat16),
        tf.constant([-2.0, 0.5], tf.float16),
        np.array([1, 2], ">i4"),
        tf.constant([[b"a", b""], [b"\xff\x00", b"long"]]),
        tf.ragged.constant([[1, 2], [], [3]]),
        tf.sparse.from_dense([[0.0, 2.0], [0.0, 0.0]]),
        {"a": (tf.constant(1.0), None), "b": [True, 2, "text", 1.5]},
        tf.zeros([0, 4]),
        tf.constant(1 + 2j, tf.complex64),
    ],
    ids=["bfloat16", "float16", "big-endian", "strings", "ragged", "sparse", "nested", "empty", "complex"],
)
def test_batches_come_back_as_they_were(value: Any) -> None:
    apart = batch.Apart()
    part = apart.part(value)
    assert apart.left_out == []
    back = batch.together(part, lambda name, dtype, shape: apart.arrays[name])
    tf.nest.assert_same_structure(value, back, expand_composites=True)
    for one, other in zip(
        tf.nest.flatten(value, expand_composites=True), tf.nest.flatten(back, expand_composites=True), strict=True
    ):
        assert type(one) is type(other)
        if hasattr(one, "dtype"):
            assert np.asarray(one).tolist() == np.asarray(other).tolist()
            assert np.asarray(one).dtype.name == np.asarray(other).dtype.name


def test_what_cannot_be_kept_is_named() -> None:
    apart = batch.Apart()
    part = apart.part((tf.constant(1.0), iter(())), names=["x", "rows"])
    assert apart.left_out == ["rows of the batch, a tuple_iterator: it cannot be kept as arrays"]
    with pytest.raises(NanWatchError, match=r"rows of the batch .* is not in this capsule"):
        batch.together(part, lambda name, dtype, shape: apart.arrays[name])


def test_texts_that_do_not_add_up_are_damage() -> None:
    apart = batch.Apart()
    part = apart.part(tf.constant([b"abc", b"d"]))
    apart.arrays["a1"] = np.array([-1, 5], np.int64)
    with pytest.raises(CorruptData, match="does not fit together"):
        batch.together(part, lambda name, dtype, shape: apart.arrays[name])


def test_a_state_too_large_is_left_out_and_said(tmp_path: Path) -> None:
    keras.backend.clear_session()
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(200_000, name="wide")])
    model.compile("adam", "mse", jit_compile=False)
    x = np.ones((24, 1), np.float32)
    x[16] = np.inf
    watched = nanwatch.NanWatch(tmp_path, disk_megabytes=1)
    model.fit(x, np.zeros((24, 1), np.float32), 8, shuffle=False, verbose=0, callbacks=[watched])
    watched.close()
    opened = only_capsule(tmp_path)
    assert opened.state is None
    assert opened.batch is not None
    (said,) = opened.capsule.left_out
    assert said.startswith("the state: its 4.6 MB are more")


def test_weights_alone_where_the_optimizer_does_not_fit() -> None:
    def kept(name: str, watched: bool) -> tuple[Kept, Any]:
        return Kept(name, "float32", (256,), name, watched), np.zeros(256, np.float32)

    everything = [kept("w", True), kept("m", False), kept("v", False)]
    assert _fitting(everything, 3072) == (everything, [])
    some, (said,) = _fitting(everything, 3071)
    assert [about.name for about, _ in some] == ["w"]
    assert said.startswith("the state beside the weights")
    assert _fitting(everything, 1023)[0] == []


def test_names_that_keras_counts_up_are_found_again() -> None:
    kept = [Kept(name, "float32", (2,), name, True) for name in ("dense_4/kernel", "dense_5/kernel", "w", "gone")]
    labels = [("dense/kernel", (2,)), ("dense_1/kernel", (2,)), ("block/w", (2,)), ("dense_2/kernel", (3,))]
    assert again.pair(kept, labels) == {0: 0, 1: 1, 2: 2}


def test_a_full_disk_costs_the_capsule_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tb_nanwatch.format.arrays.write", full)
    fit(tmp_path)
    run = only_run(tmp_path)
    assert run.incidents[0].capsule == ""
    assert run.incidents[0].origin.op_type == "Log"
    assert run.last_step == 7
    assert [n.text for n in run.notes if n.kind == "no_capsule"] == [
        "the capsule of step 5 cannot be written: [Errno 28] No space left on device"
    ]
    assert list((tmp_path / "plugins/nanwatch").iterdir()) == []


def test_the_state_of_a_generator_has_its_name(tmp_path: Path) -> None:
    w, generator = tf.Variable(tf.zeros([3, 1]), name="w"), tf.random.Generator.from_seed(3)

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.math.log((x + generator.normal([2, 3])) @ w))
        w.assign_sub(tape.gradient(loss, w))
        return loss

    with nanwatch.watch(step, tmp_path, variables=[w], trial_seconds=0) as watched:
        watched(tf.ones([2, 3]))
    assert set(read(only_capsule(tmp_path))) == {"w", "StateVar"}
