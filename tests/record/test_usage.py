"""Wrong use gets an error that says what, where and what to do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
from recorded import data, mlp, only_run

import tb_nanwatch as nanwatch


def step(x: Any) -> Any:
    return x


@pytest.fixture
def variable() -> Any:
    return tf.Variable([1.0], name="v")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"evry": 5}, "unknown option 'evry'; the options are activations, also_scalars, disk_megabytes, every"),
        ({"every": 0}, "every must be a whole number of at least 1, not 0"),
        ({"every": 2.5}, "every must be a whole number of at least 1, not 2.5"),
        ({"every": True}, "every must be a whole number of at least 1, not True"),
        ({"disk_megabytes": -1}, "disk_megabytes must be a whole number of at least 1, not -1"),
        ({"replay_megabytes": "1024"}, "replay_megabytes must be a whole number of at least 1, not '1024'"),
        ({"on_nonfinite": "explode"}, "on_nonfinite must be one of record, stop, raise, skip, not 'explode'"),
        ({"include": [3]}, r"include takes a name pattern or a list of them, not \[3\]"),
        ({"replay": "yes"}, "replay is either True or False, not 'yes'"),
        ({"activations": None}, "activations is either True or False, not None"),
    ],
)
def test_options_are_checked_before_anything_is_touched(
    options: dict[str, Any], message: str, variable: Any, tmp_path: Path
) -> None:
    with pytest.raises(nanwatch.UsageError, match=message):
        nanwatch.NanWatch(tmp_path / "run", **options)
    with pytest.raises(nanwatch.UsageError, match=message):
        nanwatch.watch(step, tmp_path / "run", variables=[variable], **options)
    assert not (tmp_path / "run").exists()


def test_a_usage_error_is_a_value_error() -> None:
    assert issubclass(nanwatch.UsageError, ValueError)
    assert issubclass(nanwatch.UsageError, nanwatch.NanWatchError)


def test_a_step_that_cannot_be_called(variable: Any, tmp_path: Path) -> None:
    with pytest.raises(nanwatch.UsageError, match="watch takes the function that trains on one batch, not int"):
        nanwatch.watch(3, tmp_path, variables=[variable])  # type: ignore[arg-type]


@pytest.mark.parametrize("nothing", [{}, {"variables": []}, {"model": []}, {"variables": [tf.Variable(1)]}])
def test_nothing_to_watch(nothing: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(nanwatch.UsageError, match=r"nothing to watch: pass model=.* or variables="):
        nanwatch.watch(step, tmp_path, **nothing)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("model", ["a name", 3, keras.optimizers.SGD()])
def test_a_model_that_is_none(model: Any, tmp_path: Path) -> None:
    with pytest.raises(nanwatch.UsageError, match=r"model= takes a Keras model or a tf.Module, not .*variables="):
        nanwatch.watch(step, tmp_path, model=model)


def unwritable(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("in the way")
    return tmp_path / "file" / "run"


def test_a_logdir_that_cannot_be_written(variable: Any, tmp_path: Path) -> None:
    logdir = unwritable(tmp_path)
    with pytest.raises(nanwatch.UsageError, match=f"the logdir '{logdir}' cannot be written: Not a directory"):
        nanwatch.watch(step, logdir, variables=[variable])
    model = mlp()
    x, y = data()
    with pytest.raises(nanwatch.UsageError, match="cannot be written"):
        model.fit(x, y, verbose=0, callbacks=[nanwatch.NanWatch(logdir)])
    assert "train_step" not in model.__dict__
    model.fit(x, y, verbose=0)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(variable: Any, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(nanwatch.UsageError, match="cannot be written: Permission denied"):
            nanwatch.watch(step, tmp_path / "run", variables=[variable])
    finally:
        tmp_path.chmod(0o700)


def test_a_model_without_optimizer_is_keras_business(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    x, y = data()
    with pytest.raises(ValueError, match="compile"):
        model.fit(x, y, verbose=0, callbacks=[nanwatch.NanWatch(tmp_path)])


def test_watching_without_an_optimizer(tmp_path: Path) -> None:
    v = tf.Variable([1.0], name="v")

    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(v * x)
        v.assign_sub(0.1 * tape.gradient(loss, v))
        return loss

    with nanwatch.watch(train, tmp_path, variables=[v]) as watched:
        watched(tf.constant([1.0]))
    run = only_run(tmp_path)
    assert len(run.series("scalar/learning_rate", "value").steps) == 0


def test_two_watchers_of_one_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The later one goes on, the step of the earlier one trains unwatched; that is said, but not of the same logdir."""
    v = tf.Variable([1.0], name="v")

    def train(x: Any) -> Any:
        return v.assign_add(x)

    first = nanwatch.watch(train, tmp_path / "a", variables=[v])
    first(tf.constant([1.0]))
    second = nanwatch.watch(train, tmp_path / "b", variables=[v])
    said = f"the model that '{tmp_path / 'a'}' records is watched for '{tmp_path / 'b'}' now"
    assert capsys.readouterr().out.count(said) == 1
    assert float(first(tf.constant([1.0]))[0]) == 3
    assert float(second(tf.constant([1.0]))[0]) == 4
    third = nanwatch.watch(train, tmp_path / "b", variables=[v])
    assert float(third(tf.constant([1.0]))[0]) == 5
    third.close()
    assert "is watched for" not in capsys.readouterr().out
    assert only_run(tmp_path / "a").steps == 1
    assert [(a.first_step, a.last_step) for a in only_run(tmp_path / "b").attempts] == [(0, 0), (1, 1)]


def test_a_watcher_after_training_started(tmp_path: Path) -> None:
    """Its steps count from 0; the optimizer's iterations stand beside them, and a note says that some are missing."""
    model = mlp()
    x, y = data(64)
    model.fit(x, y, batch_size=8, verbose=0)
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[nanwatch.NanWatch(tmp_path)])
    run = only_run(tmp_path)
    series = run.series("loss/loss", "value")
    assert series.steps.tolist() == list(range(8))
    assert series.iterations.tolist() == list(range(9, 17))
    assert [(n.kind, n.step, n.text) for n in run.notes] == [
        ("late", 0, "watching begins behind 8 steps of the optimizer, which are not recorded")
    ]


def test_a_logdir_may_be_text_or_a_path_and_is_made(tmp_path: Path) -> None:
    v = tf.Variable([1.0], name="v")
    for logdir in (tmp_path / "a" / "b", str(tmp_path / "c" / "d")):
        nanwatch.watch(step, logdir, variables=[v]).close()
        assert only_run(Path(logdir)).steps == 0


def test_the_errors_of_a_step_are_the_users(tmp_path: Path) -> None:
    v = tf.Variable([1.0], name="v")

    def train(x: Any) -> Any:
        v.assign_add(x)
        if float(x[0]) < 0:
            raise LookupError("the user's")
        return v.read_value()

    with nanwatch.watch(train, tmp_path, variables=[v]) as watched:
        watched(tf.constant([1.0]))
        with pytest.raises(LookupError, match="the user's"):
            watched(tf.constant([-1.0]))
        assert float(watched(tf.constant([1.0]))[0]) == 2
        with pytest.raises(TypeError):
            watched()
    assert only_run(tmp_path).steps == 2


def test_a_watched_step_looks_like_the_step(tmp_path: Path) -> None:
    v = tf.Variable([1.0], name="v")

    def train_on(x: Any, scale: float = 2.0) -> Any:
        """What it does."""
        return x * scale * v

    with nanwatch.watch(train_on, tmp_path, variables=[v]) as watched:
        assert watched.__name__ == "train_on"
        assert watched.__doc__ == "What it does."
        assert float(watched(tf.constant([1.0]))[0]) == 2
        assert float(watched(tf.constant([1.0]), scale=3.0)[0]) == 3
    assert float(watched(tf.constant([1.0]), 4.0)[0]) == 4  # closed, it still is the step
    watched.close()
    assert only_run(tmp_path).steps == 2
