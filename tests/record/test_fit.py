"""The life of a watched fit: several fits, models and processes, exceptions, odd data, and what is left behind."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from recorded import data, incidents, mlp, only_run, values

import tb_nanwatch as nanwatch
from tb_nanwatch.store.catalog import Catalog


def fit(model: Any, *callbacks: Any, samples: int = 64, **more: Any) -> Any:
    x, y = data(samples)
    return model.fit(x, y, **{"batch_size": 8, "verbose": 0, "callbacks": list(callbacks), **more})


def is_untouched(model: Any) -> bool:
    """Whether a model is as if no watcher had ever been there."""
    ours = {"train_step", "make_train_function"} & set(model.__dict__)
    return not ours and "NanWatch" not in getattr(model.train_function, "__qualname__", "")


class At(keras.callbacks.Callback):
    """Calls something behind the n-th batch."""

    def __init__(self, batch: int, call: Callable[[Any], None]) -> None:
        super().__init__()
        self.batch, self.call = batch, call

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == self.batch:
            self.call(self.model)


def raising(error: BaseException) -> Callable[[Any], None]:
    def call(model: Any) -> None:
        raise error

    return call


# ---------------------------------------------------------------- several fits


def test_a_second_fit_goes_on_counting(tmp_path: Path) -> None:
    model, watcher = mlp(), nanwatch.NanWatch(tmp_path)
    fit(model, watcher)
    assert is_untouched(model)
    fit(model, watcher, epochs=2)
    run = only_run(tmp_path)
    assert (run.steps, run.last_step, len(run.attempts)) == (24, 23, 1)
    assert np.array_equal(run.series("loss/loss", "value").iterations, np.arange(1, 25))


def test_a_second_callback_is_another_attempt(tmp_path: Path) -> None:
    model = mlp()
    for _ in range(2):
        fit(model, nanwatch.NanWatch(tmp_path))
    run = only_run(tmp_path)
    assert [(a.first_step, a.last_step) for a in run.attempts] == [(0, 7), (8, 15)]
    assert [(n.step, n.kind) for n in run.notes] == [(8, "continued")]


@pytest.mark.parametrize(
    "again",
    [
        {"optimizer": keras.optimizers.SGD(0.5)},
        {"steps_per_execution": 4},
        {"jit_compile": True},
        {"run_eagerly": True},
    ],
    ids=lambda again: next(iter(again)),
)
def test_compiling_anew_between_fits(again: dict[str, Any], tmp_path: Path) -> None:
    model, watcher = mlp(), nanwatch.NanWatch(tmp_path)
    fit(model, watcher)
    model.compile(**{"optimizer": keras.optimizers.Adam(), "loss": "mse", "jit_compile": False, **again})
    fit(model, watcher)
    run = only_run(tmp_path)
    assert run.steps == 16
    assert list(run.series("loss/loss", "value").iterations) == [*range(1, 9), *range(1, 9)]
    if "optimizer" in again:
        assert {round(rate, 6) for rate in values(run, "scalar/learning_rate", "value").values()} == {0.01, 0.5}


def test_thawing_a_layer_between_fits(tmp_path: Path) -> None:
    model, watcher = mlp(), nanwatch.NanWatch(tmp_path, every=4)
    for trainable in (False, True):
        model.get_layer("first").trainable = trainable
        model.compile("sgd", "mse", jit_compile=False)
        fit(model, watcher)
    run = only_run(tmp_path)
    assert min(values(run, "gradient/first/kernel")) == 8
    assert list(values(run, "update/first/kernel")) == [8, 12]


def test_one_callback_for_two_models(tmp_path: Path) -> None:
    one, other, watcher = mlp(1), mlp(2), nanwatch.NanWatch(tmp_path)
    for model in (one, other, one):
        fit(model, watcher)
        assert is_untouched(model)
    assert only_run(tmp_path).steps == 24


def test_two_callbacks_in_one_fit_are_one_watcher(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = mlp()
    fit(model, nanwatch.NanWatch(tmp_path / "a"), nanwatch.NanWatch(tmp_path / "b"))
    said = f"the model that '{tmp_path / 'a'}' records is watched for '{tmp_path / 'b'}' now: a model has one watcher"
    assert capsys.readouterr().out.count(said) == 1
    assert not (tmp_path / "a").exists()
    assert only_run(tmp_path / "b").steps == 8
    assert is_untouched(model)


PROGRAM = """
import sys
import keras
import numpy as np
import tb_nanwatch

keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, name="d")])
model.compile("sgd", "mse", jit_compile=False)
x, y = np.ones((32, 4)), np.ones((32, 1))
checkpoint = sys.argv[2] if len(sys.argv) > 2 else None
if checkpoint:
    model.fit(x, y, batch_size=8, verbose=0)
    model.optimizer.iterations.assign(int(checkpoint))
model.fit(x, y, batch_size=8, verbose=0, callbacks=[tb_nanwatch.NanWatch(sys.argv[1])])
"""


def test_a_second_process_is_a_restart(tmp_path: Path) -> None:
    for more in ([], [], ["2"]):  # the third restores a checkpoint of step 2
        subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), *more], check=True, capture_output=True)
    run = only_run(tmp_path)
    assert [(a.first_step, a.last_step, a.ended) for a in run.attempts] == [(0, 3, True), (4, 7, True), (6, 9, True)]
    assert [(n.step, n.kind) for n in run.notes] == [(4, "restart"), (6, "restart")]
    assert len({a.header.pid for a in run.attempts}) == 3


LIVE = """
import sys
import tensorflow as tf
import tb_nanwatch

v = tf.Variable([1.0], name="v")
step = tb_nanwatch.watch(lambda x: v.assign_add(x), sys.argv[1], variables=[v])
step(tf.constant([1.0]))
print("ready", flush=True)
sys.stdin.readline()
step(tf.constant([1.0]))
"""


def test_another_live_process_on_the_same_logdir(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", LIVE, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "ready\n"
    fit(mlp(), nanwatch.NanWatch(tmp_path))
    other.communicate("go on\n", timeout=60)
    assert other.returncode == 0
    said = f"process {other.pid} seems to be writing to this logdir too; this recorder is an attempt of its own"
    assert said in capsys.readouterr().out
    run = only_run(tmp_path)
    assert said in {note.text for note in run.notes}
    assert len(run.attempts) == 2
    assert run.attempts[0].last_step == 1


def test_whatever_lies_in_a_logdir(tmp_path: Path) -> None:
    """Files that are no event files, or damaged ones, do not keep a recorder from beginning."""
    name = "events.out.tfevents.1700000000.host.1.abcdabcd.00000.nanwatch"
    (tmp_path / name).mkdir()
    (tmp_path / name.replace("abcdabcd", "aaaaaaaa")).write_bytes(b"")
    (tmp_path / name.replace("abcdabcd", "bbbbbbbb")).write_bytes(np.random.default_rng(1).bytes(5000))
    (tmp_path / "events.out.tfevents.nanwatch").write_bytes(b"\x10" + bytes(100))
    (tmp_path / name.replace("abcdabcd", "cccccccc")).symlink_to(tmp_path / "nowhere")
    fit(mlp(), nanwatch.NanWatch(tmp_path))
    catalog = Catalog(tmp_path)
    catalog.refresh()
    assert sum(run.steps for run in catalog.runs().values()) == 8


# ---------------------------------------------------------------- only training steps count


def test_evaluation_and_prediction_are_no_steps(tmp_path: Path) -> None:
    x, y = data()

    def look(model: Any) -> None:
        model.evaluate(x, y, verbose=0)
        model.predict(x, verbose=0)

    model = mlp()
    fit(model, nanwatch.NanWatch(tmp_path), At(3, look), epochs=2, validation_data=(x, y))
    model.evaluate(x, y, verbose=0)
    assert only_run(tmp_path).steps == 16


def test_training_goes_on_when_the_watcher_is_closed(tmp_path: Path) -> None:
    watched, plain = mlp(), mlp()
    watcher = nanwatch.NanWatch(tmp_path)
    fit(watched, watcher, At(2, lambda model: watcher.close()), shuffle=False)
    fit(plain, shuffle=False)
    assert all(np.array_equal(a, b) for a, b in zip(watched.get_weights(), plain.get_weights(), strict=True))
    run = only_run(tmp_path)
    assert run.steps == 3
    assert run.ended
    assert is_untouched(watched)


# ---------------------------------------------------------------- exceptions


class Failing(keras.Model):
    """Fails in its n-th eager step."""

    def __init__(self, error: BaseException, at: int) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.error, self.at, self.count = error, at, 0

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> Any:
        self.count += 1
        if self.count == self.at:
            raise self.error
        return super().train_step(data)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("the user's"), SystemExit(3)], ids=repr)
def test_an_exception_in_a_step_passes(error: BaseException, tmp_path: Path) -> None:
    model = Failing(error, at=4)
    model.compile("sgd", "mse", run_eagerly=True)
    watcher = nanwatch.NanWatch(tmp_path)
    with pytest.raises(type(error)) as raised:
        fit(model, watcher)
    assert raised.value is error
    assert is_untouched(model)
    fit(model)
    watcher.close()
    assert only_run(tmp_path).steps == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("the user's")], ids=repr)
@pytest.mark.parametrize("then", ["fit", "compile", "watch"])
def test_an_exception_in_another_callback_passes(error: BaseException, then: str, tmp_path: Path) -> None:
    """Keras tells no callback that the fit is over."""
    model, watcher = mlp(), nanwatch.NanWatch(tmp_path)
    with pytest.raises(type(error)):
        fit(model, watcher, At(2, raising(error)))
    if then == "compile":
        model.compile("sgd", "mse", jit_compile=False)
    fit(model, *([watcher] if then == "watch" else []))
    assert is_untouched(model)
    watcher.close()
    assert only_run(tmp_path).steps == (11 if then == "watch" else 3)


def test_another_fit_inside_a_callback(tmp_path: Path) -> None:
    model = mlp()
    fit(model, nanwatch.NanWatch(tmp_path), At(3, lambda m: fit(m, samples=16)))
    assert is_untouched(model)
    assert only_run(tmp_path).steps >= 4


# ---------------------------------------------------------------- the model stays what it was


def test_saving_cloning_and_pickling_while_and_after(tmp_path: Path) -> None:
    x, y = data(16)

    def keep(model: Any) -> None:
        model.save(tmp_path / "m.keras")
        model.save_weights(tmp_path / "m.weights.h5")
        model.export(tmp_path / "exported", verbose=False)
        for twin in (
            keras.models.load_model(tmp_path / "m.keras"),
            pickle.loads(pickle.dumps(model)),
            copy.deepcopy(model),
            keras.models.clone_model(model),
        ):
            twin.compile("sgd", "mse", jit_compile=False)
            twin.fit(x, y, batch_size=8, verbose=0)

    model = mlp()
    fit(model, nanwatch.NanWatch(tmp_path / "run"), At(3, keep))
    keep(model)
    model.train_on_batch(x, y)
    assert only_run(tmp_path / "run").steps == 8


def test_a_train_step_of_the_object_itself_comes_back(tmp_path: Path) -> None:
    model, calls = mlp(run_eagerly=True), []
    own = model.train_step

    def mine(batch: Any) -> Any:
        calls.append(1)
        return own(batch)

    model.train_step = mine
    fit(model, nanwatch.NanWatch(tmp_path))
    assert model.train_step is mine
    fit(model)
    assert len(calls) == 16


def test_nothing_keeps_a_model_alive(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    model = mlp()
    fit(model, nanwatch.NanWatch(tmp_path))
    left = weakref.ref(model)
    del model
    keras.backend.clear_session()
    for _ in range(3):
        gc.collect()
    assert left() is None
    assert not [t for t in threading.enumerate() if t.name == "nanwatch-writer" and t not in before]
    assert only_run(tmp_path).ended


# ---------------------------------------------------------------- models and data of all kinds


def sources() -> dict[str, Any]:
    x, y = data()

    def finite() -> Iterator[Any]:
        for i in range(0, 64, 8):
            yield x[i : i + 8], y[i : i + 8]

    def endless() -> Iterator[Any]:
        while True:
            yield from finite()

    signature = (tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1)))
    return {
        "dataset": (tf.data.Dataset.from_tensor_slices((x, y)).batch(8), {"epochs": 3}),
        "unknown_size": (tf.data.Dataset.from_generator(finite, output_signature=signature), {"epochs": 3}),
        "repeated": (tf.data.Dataset.from_tensor_slices((x, y)).batch(8).repeat(), {"epochs": 3, "steps_per_epoch": 8}),
        "generator": (endless(), {"epochs": 3, "steps_per_epoch": 8}),
        "short_generator": (finite(), {"epochs": 1}),
    }


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("source", ["dataset", "unknown_size", "repeated", "generator", "short_generator"])
def test_every_kind_of_data(source: str, jit: bool, tmp_path: Path) -> None:
    def trained(*callbacks: Any) -> Any:
        values_in, options = sources()[source]
        model = mlp(jit_compile=jit)
        model.fit(values_in, verbose=0, callbacks=list(callbacks), **options)
        return model

    plain, watched = trained(), trained(nanwatch.NanWatch(tmp_path))
    for a, b in zip(
        [*plain.variables, *plain.optimizer.variables], watched.variables + watched.optimizer.variables, strict=True
    ):
        assert np.array_equal(np.asarray(a), np.asarray(b)), a.path
    run = only_run(tmp_path)
    steps = 8 * sources()[source][1]["epochs"]
    assert (run.steps, run.last_step) == (steps, steps - 1)
    assert run.incidents == ()
    iterations = run.series("loss/loss", "value").iterations
    assert (np.diff(iterations) >= 1).all()
    if source != "unknown_size":  # there Keras counts the end of the data, too
        assert list(iterations) == list(range(1, steps + 1))


def test_several_inputs_outputs_and_sample_weights(tmp_path: Path) -> None:
    keras.backend.clear_session()
    a, b = keras.Input((4,), name="a"), keras.Input((3,), name="b")
    joined = keras.layers.Concatenate(name="joined")([a, b])
    model = keras.Model({"a": a, "b": b}, {n: keras.layers.Dense(1, name=n)(joined) for n in ("left", "right")})
    model.compile("sgd", {"left": "mse", "right": "mae"}, jit_compile=False)
    rng = np.random.default_rng(1)
    x = {"a": rng.normal(size=(32, 4)), "b": rng.normal(size=(32, 3))}
    y = {"left": rng.normal(size=(32, 1)), "right": rng.normal(size=(32, 1))}
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[nanwatch.NanWatch(tmp_path / "dicts")])
    run = only_run(tmp_path / "dicts")
    assert [info.name for info in run.kind("input")] == ["x/a", "x/b", "y/left", "y/right"]
    assert {"left", "right"} <= {info.layer for info in run.kind("gradient")}
    assert run.steps == 4
    x1, y1 = data()
    weight = np.linspace(0, 1, 64).astype("float32")
    mlp().fit(
        x1, y1, sample_weight=weight, batch_size=8, verbose=0, callbacks=[nanwatch.NanWatch(tmp_path / "weighted")]
    )
    weighted = only_run(tmp_path / "weighted")
    assert [info.name for info in weighted.kind("input")] == ["x", "y", "sample_weight"]


def test_a_model_that_is_built_by_its_first_step(tmp_path: Path) -> None:
    class Late(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.inner = keras.Sequential(
                [keras.layers.Dense(3, name="d"), keras.layers.Dense(1, name="e")], name="inner"
            )

        def call(self, x: Any) -> Any:
            return self.inner(x)

    for eagerly in (False, True):
        model = Late()
        model.compile("sgd", "mse", jit_compile=False, run_eagerly=eagerly)
        fit(model, nanwatch.NanWatch(tmp_path / str(eagerly)))
        run = only_run(tmp_path / str(eagerly))
        expected = [f"inner/{layer}/{name}" for layer in "de" for name in ("kernel", "bias")]
        assert [info.name for info in run.kind("weight")] == expected
        assert sorted(info.name for info in run.kind("gradient")) == sorted(expected)


@pytest.mark.parametrize("jit", [False, True])
def test_a_sequential_model_without_input_trains_as_ever(jit: bool, tmp_path: Path) -> None:
    def trained(*callbacks: Any) -> Any:
        keras.backend.clear_session()
        keras.utils.set_random_seed(1)
        layers = [
            keras.layers.Dense(5, activation="relu", name="d"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(1, name="e"),
        ]
        model = keras.Sequential(layers)
        model.compile("adam", "mse", metrics=["mae"], jit_compile=jit)
        fit(model, *callbacks, epochs=3)
        return model

    plain, watched = trained(), trained(nanwatch.NanWatch(tmp_path))
    for a, b in zip(plain.variables, watched.variables, strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b)), a.path
    run = only_run(tmp_path)
    assert run.steps == 24
    assert [info.name for info in run.kind("weight")] == ["d/kernel", "d/bias", "e/kernel", "e/bias"]
    assert {"d/kernel", "e/kernel"} <= {info.name for info in run.kind("gradient")}
    assert "loss/loss" in {info.tag for info in run.tensors}


@pytest.mark.parametrize("jit", [False, True])
def test_mixed_precision_trains_as_ever(jit: bool, tmp_path: Path) -> None:
    """Keras builds the loss scale in the first step. Gradients in the file are those of the unscaled loss."""

    def trained(*callbacks: Any) -> Any:
        keras.backend.clear_session()
        keras.utils.set_random_seed(1)
        policy = "mixed_float16"
        layers = [
            keras.layers.Dense(8, activation="tanh", name="d", dtype=policy),
            keras.layers.Dense(1, name="e", dtype=policy),
        ]
        model = keras.Sequential([keras.Input((4,)), *layers])
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1e-3), initial_scale=2.0**24)
        model.compile(optimizer, "mse", jit_compile=jit)
        fit(model, *callbacks, epochs=4)
        return model

    plain, watched = trained(), trained(nanwatch.NanWatch(tmp_path))
    for a, b in zip(plain.variables, watched.variables, strict=True):
        assert np.array_equal(np.asarray(a), np.asarray(b)), a.path
    run = only_run(tmp_path)
    scales = run.series("scalar/loss_scale", "value").values
    assert len(scales) == 32
    assert scales[-1] < 2.0**20
    for layer in "de":
        gradients = run.series(f"gradient/{layer}/kernel").values
        assert len(gradients) >= (3 if jit else 32)
        assert np.nanmax(gradients) < 100
    assert run.incidents == ()  # only skipped steps


def test_shared_layers_are_numbered_in_call_order(tmp_path: Path) -> None:
    keras.backend.clear_session()
    inputs = keras.Input((4,))
    shared = keras.layers.Dense(4, activation="tanh", name="shared")
    model = keras.Model(inputs, keras.layers.Dense(1, name="out")(shared(shared(inputs))))
    model.compile("sgd", "mse", jit_compile=False)
    fit(model, nanwatch.NanWatch(tmp_path))
    run = only_run(tmp_path)
    assert [info.name for info in run.kind("activation")][:2] == ["shared/output", "shared:1/output"]
    assert [info.name for info in run.kind("weight")] == ["shared/kernel", "shared/bias", "out/kernel", "out/bias"]


def test_layers_with_rnn_dropout_and_embedding(tmp_path: Path) -> None:
    keras.backend.clear_session()
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            layers.Embedding(10, 3, mask_zero=True, name="emb"),
            layers.Bidirectional(layers.LSTM(4, return_sequences=True), name="both"),
            layers.Dropout(0.2, name="drop"),
            layers.GRU(3, name="gru"),
            layers.Dense(2, name="out"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], jit_compile=False)
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 10, (32, 5)), rng.integers(0, 2, 32)
    model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=[nanwatch.NanWatch(tmp_path)])
    run = only_run(tmp_path)
    assert run.steps == 8
    assert incidents(run) == []
    assert run.kind("input") == ()  # whole numbers hold no NaN
    assert {i.layer.partition("/")[0] for i in run.kind("gradient")} == {"emb", "both", "gru", "out"}
