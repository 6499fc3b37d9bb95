"""Keras 2 (`tf_keras`): the same callback, the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import batches, data, descending, incidents, norm, only_run, values

import tb_nanwatch as nanwatch

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("tf_keras")

HOW = {
    "uncompiled": {},
    "xla": {"jit_compile": True},
    "eager": {"run_eagerly": True},
    "grouped": {"steps_per_execution": 4},
}


def mlp(inputs: bool = True, **compiled: Any) -> Any:
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(5, activation="relu", name="a"), keras.layers.Dense(1, name="b")]
    model = keras.Sequential([*([keras.Input((4,))] if inputs else []), *layers])
    model.compile(keras.optimizers.Adam(1e-2), "mse", **compiled)
    return model


def fit(model: Any, *callbacks: Any, bad: int | None = None, **more: Any) -> Any:
    x, y = data(bad=bad)
    return model.fit(x, y, **{"batch_size": 8, "shuffle": False, "verbose": 0, "callbacks": list(callbacks), **more})


def is_untouched(model: Any) -> bool:
    return not {"train_step", "make_train_function", "evaluate"} & set(model.__dict__)


@pytest.mark.parametrize("inputs", [True, False], ids=["built", "unbuilt"])
@pytest.mark.parametrize("how", HOW)
def test_a_fit_trains_as_ever_and_is_recorded(how: str, inputs: bool, tmp_path: Path) -> None:
    plain = mlp(inputs, **HOW[how])
    fit(plain, epochs=2)
    watched = mlp(inputs, **HOW[how])
    fit(watched, nanwatch.NanWatch(tmp_path), epochs=2)
    for a, b in zip(plain.get_weights(), watched.get_weights(), strict=True):
        assert np.array_equal(a, b)
    assert is_untouched(watched)
    run = only_run(tmp_path)
    assert (run.steps, run.last_step) == (16, 15)
    assert list(run.series("loss/loss", "value").iterations) == list(range(1, 17))
    assert [info.name for info in run.kind("weight")] == ["a/kernel", "a/bias", "b/kernel", "b/bias"]
    assert {"a/kernel", "b/kernel"} <= {info.name for info in run.kind("gradient")}
    assert incidents(run) == []
    for name, weight in zip(("a/kernel", "a/bias", "b/kernel", "b/bias"), watched.get_weights(), strict=True):
        assert values(run, f"weight/{name}")[15] == pytest.approx(norm(weight), rel=0.006)


@pytest.mark.parametrize("how", ["uncompiled", "xla", "eager"])
@pytest.mark.parametrize("policy", ["record", "stop", "raise", "skip"])
def test_policies(policy: str, how: str, tmp_path: Path) -> None:
    model, watcher = mlp(**HOW[how]), nanwatch.NanWatch(tmp_path, on_nonfinite=policy)
    if policy == "raise":
        with pytest.raises(nanwatch.NonFiniteError):
            fit(model, watcher, bad=20, epochs=2)
    else:
        fit(model, watcher, bad=20, epochs=2)
    watcher.close()
    assert is_untouched(model)
    run = only_run(tmp_path)
    assert run.last_step == (2 if policy in ("stop", "raise") else 15)
    assert incidents(run) == [(2, "input", "x")]
    assert all(np.isfinite(w).all() for w in model.get_weights()) == (policy == "skip")


def test_several_fits_and_an_exception(tmp_path: Path) -> None:
    model, watcher = mlp(), nanwatch.NanWatch(tmp_path)

    class Interrupting(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 2:
                raise KeyboardInterrupt

    fit(model, watcher)
    fit(model, watcher, batch_size=7)
    with pytest.raises(KeyboardInterrupt):
        fit(model, watcher, Interrupting())
    fit(model)
    assert is_untouched(model)
    watcher.close()
    assert only_run(tmp_path).steps == 8 + 10 + 3


def test_data_of_unknown_size(tmp_path: Path) -> None:
    x, y = data()
    signature = (tf.TensorSpec((4,)), tf.TensorSpec((1,)))
    source = tf.data.Dataset.from_generator(lambda: iter(zip(x, y, strict=True)), output_signature=signature).batch(8)
    mlp().fit(source, epochs=3, verbose=0, callbacks=[nanwatch.NanWatch(tmp_path)])
    assert (only_run(tmp_path).steps, only_run(tmp_path).last_step) == (24, 23)


@pytest.mark.parametrize("style", ["eager", "function", "xla"])
def test_a_custom_loop(style: str, tmp_path: Path) -> None:
    model = mlp()

    train = descending(model)
    step = train if style == "eager" else tf.function(train, jit_compile=style == "xla")
    with nanwatch.watch(step, tmp_path, model=model, optimizer=model.optimizer) as watched:
        for x, y in batches(*data()):
            watched(tf.constant(x), tf.constant(y))
    run = only_run(tmp_path)
    assert run.steps == 8
    assert list(run.series("loss/loss", "value").iterations) == list(range(1, 9))
    assert values(run, "weight/a/kernel")[7] == pytest.approx(norm(model.get_layer("a").kernel), rel=0.006)
    assert set(values(run, "scalar/learning_rate", "value").values()) == {np.float32(0.01)}


def test_another_callback_that_ends_a_fit(tmp_path: Path) -> None:
    class Raising(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 3:
                raise ValueError("enough")

    model = mlp()
    with pytest.raises(ValueError, match="enough"):
        fit(model, nanwatch.NanWatch(tmp_path), Raising())
    (note,) = [note for note in only_run(tmp_path).notes if note.kind == "raised"]
    assert (note.step, note.text.partition(" (")[0]) == (4, "ValueError: enough")
    assert is_untouched(model)
