"""Every form of a Keras fit, trained for real: own train_step, several optimizers, weights of samples and classes, data
that comes in parts, wrapped layers, and what runs beside it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from recorded import ERROR, batches, check_norms, data, incidents, mlp, norm, only_run, values

import tb_nanwatch as nanwatch
from tb_nanwatch.store.run import Run

Watcher = functools.partial(nanwatch.NanWatch, trial_seconds=0)
watch = functools.partial(nanwatch.watch, trial_seconds=0)
layers = keras.layers


def seeded() -> None:
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)


def same_bits(one: Any, other: Any) -> bool:
    """Whether two lists of variables hold the same."""
    return all(np.array_equal(np.asarray(a), np.asarray(b), equal_nan=True) for a, b in zip(one, other, strict=True))


def check_last(run: Run, model: Any, names: dict[str, Any]) -> None:
    """The norms of the last step's weights are those that the training left behind."""
    for name, variable in names.items():
        assert values(run, f"weight/{name}")[run.last_step] == pytest.approx(norm(variable), rel=ERROR), name


# ---------------------------------------------------------------- own train_step


class Gan(keras.Model):
    """As in the guides of Keras: two models, two optimizers of its own, none of Keras's."""

    def __init__(self) -> None:
        super().__init__()
        self.discriminator = keras.Sequential(
            [keras.Input((2,)), layers.Dense(6, activation="tanh", name="in"), layers.Dense(1, name="score")],
            name="discriminator",
        )
        self.generator = keras.Sequential(
            [keras.Input((3,)), layers.Dense(6, activation="relu", name="in"), layers.Dense(2, name="point")],
            name="generator",
        )
        self.seeds = keras.random.SeedGenerator(5)
        self.d_loss = keras.metrics.Mean(name="d_loss")

    def compile(self, d_optimizer: Any, g_optimizer: Any, loss_fn: Any, **more: Any) -> None:
        super().compile(**more)
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn

    def train_step(self, real: Any) -> Any:
        count = tf.shape(real)[0]
        fake = self.generator(keras.random.normal((count, 3), seed=self.seeds))
        both = tf.concat([fake, real], 0)
        labels = tf.concat([tf.ones((count, 1)), tf.zeros((count, 1))], 0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(both))
        gradients = tape.gradient(d_loss, self.discriminator.trainable_weights)
        self.d_optimizer.apply_gradients(zip(gradients, self.discriminator.trainable_weights, strict=True))
        noise = keras.random.normal((count, 3), seed=self.seeds)
        with tf.GradientTape() as tape:
            g_loss = self.loss_fn(tf.zeros((count, 1)), self.discriminator(self.generator(noise)))
        gradients = tape.gradient(g_loss, self.generator.trainable_weights)
        self.g_optimizer.apply_gradients(zip(gradients, self.generator.trainable_weights, strict=True))
        self.d_loss.update_state(d_loss)
        return {"d_loss": self.d_loss.result(), "g_loss": g_loss}


def parts(model: Gan) -> list[Any]:
    """What is trained in it."""
    return [model, model.d_optimizer, model.g_optimizer]


def gan(poisoned: bool, jit: bool, *callbacks: Any) -> tuple[Any, Any]:
    seeded()
    model = Gan()
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), keras.optimizers.Adam(1e-3), loss, jit_compile=jit)
    x = np.random.default_rng(1).normal(size=(96, 2)).astype("float32")
    if poisoned:
        x[60] = np.inf
    history = model.fit(x, batch_size=8, epochs=2, shuffle=False, verbose=0, callbacks=list(callbacks))
    return model, history.history


@pytest.mark.parametrize("poisoned", [False, True], ids=["finite", "poisoned"])
@pytest.mark.parametrize("jit", [False, True], ids=["uncompiled", "xla"])
def test_a_gan_with_two_optimizers_of_its_own(jit: bool, poisoned: bool, tmp_path: Path) -> None:
    plain, told = gan(poisoned, jit)
    watched, seen = gan(poisoned, jit, Watcher(tmp_path))
    for one, other in zip(parts(plain), parts(watched), strict=True):
        assert same_bits(one.variables, other.variables), one.name
    assert np.array_equal(told["g_loss"], seen["g_loss"], equal_nan=True)
    run = only_run(tmp_path)
    assert run.steps == 24
    assert incidents(run) == ([(7, "input", "x")] if poisoned else [])
    weights = [f"{model}/{layer}/kernel" for model, layer in (("discriminator", "in"), ("generator", "point"))]
    assert set(weights) <= {i.name for i in run.kind("weight")} & {i.name for i in run.kind("gradient")}
    assert [i.name for i in run.kind("loss")] == ["loss", "loss:1"]
    rates = {i.name: set(values(run, i.tag, "value").values()) for i in run.kind("scalar") if "rate" in i.name}
    assert rates == {
        "learning_rate": {np.float32(3e-3)},
        "learning_rate/g_optimizer": {np.float32(1e-3)},
    }
    if not poisoned:
        last = {"discriminator/in/kernel": watched.discriminator.get_layer("in").kernel}
        check_last(run, watched, last)
        assert values(run, "loss/loss:1", "value")[23] == pytest.approx(told["g_loss"][-1], rel=1e-5)
        assert run.series("loss/loss", "value").iterations.tolist() == list(range(1, 25))


class Vae(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = keras.Sequential([keras.Input((6,)), layers.Dense(4, name="code")], name="encoder")
        self.decoder = keras.Sequential([keras.Input((2,)), layers.Dense(6, name="dec_out")], name="decoder")
        self.seeds = keras.random.SeedGenerator(5)

    def train_step(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            mean, log_var = tf.split(self.encoder(x), 2, -1)
            noise = keras.random.normal(tf.shape(mean), seed=self.seeds)
            restored = self.decoder(mean + tf.exp(0.5 * log_var) * noise)
            kl = -0.5 * tf.reduce_mean(1 + log_var - mean**2 - tf.exp(log_var))
            loss = tf.reduce_mean((restored - x) ** 2) + kl
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss, "kl": kl}


@pytest.mark.parametrize("eagerly", [False, True], ids=["uncompiled", "eager"])
def test_a_vae_whose_variance_overflows(eagerly: bool, tmp_path: Path) -> None:
    def train(*callbacks: Any) -> Any:
        seeded()
        model = Vae()
        model.compile("sgd", jit_compile=False, run_eagerly=eagerly)
        x = np.random.default_rng(1).normal(size=(64, 6)).astype("float32")
        x[43] = 3e3  # log_var of this sample is beyond what exp can bear
        model.encoder.get_layer("code").bias.assign([0, 0, 0, 0])
        model.encoder.get_layer("code").kernel.assign(np.full((6, 4), 0.05, "float32"))
        model.fit(x, batch_size=8, shuffle=False, verbose=0, callbacks=list(callbacks))
        return model

    plain, watched = train(), train(Watcher(tmp_path))
    assert same_bits(plain.variables, watched.variables)
    run = only_run(tmp_path)
    ((first, phase, _),) = incidents(run)
    origin = run.incidents[0].origin
    assert (first, phase, origin.op_type, origin.samples) == (5, "loss", "Exp", (3,))
    assert origin.source is not None
    assert "tf.exp(" in origin.source.code


# ---------------------------------------------------------------- weights of samples and classes


@pytest.mark.parametrize("jit", [False, True], ids=["uncompiled", "xla"])
def test_weights_of_samples_and_classes_are_in_the_loss(jit: bool, tmp_path: Path) -> None:
    x, _ = data(48)
    labels = np.arange(48) % 2
    weights = {0: 0.25, 1: 3.0}

    def train(logdir: Path, **weighted: Any) -> Run:
        model = mlp(optimizer=keras.optimizers.SGD(0.0), jit_compile=jit)
        model.fit(
            x,
            labels.astype("float32"),
            batch_size=8,
            shuffle=False,
            verbose=0,
            callbacks=[Watcher(logdir)],
            **weighted,
        )
        return only_run(logdir)

    of_samples = np.where(labels == 1, 3.0, 0.25).astype("float32")
    runs = [train(tmp_path / "c", class_weight=weights), train(tmp_path / "s", sample_weight=of_samples)]
    output = np.asarray(mlp()(x), np.float64)[:, 0]
    expected = {
        n: np.mean((of_samples * (output - labels) ** 2)[8 * n : 8 * n + 8]) for n in range(6)
    }  # the weights of the model stay as they are: the learning rate is 0
    for run in runs:
        assert values(run, "loss/loss", "value") == pytest.approx(expected, rel=1e-4)
        assert [i.name for i in run.kind("input")] == ["x", "y", "sample_weight"]
    back = 2 * of_samples * (output - labels) / 8
    for run in runs:
        recorded = values(run, "gradient/last/bias")
        assert recorded == pytest.approx({n: abs(back[8 * n : 8 * n + 8].sum()) for n in recorded}, rel=6e-3)


def test_a_bad_sample_weight_is_named(tmp_path: Path) -> None:
    x, y = data(48)
    weight = np.ones(48, "float32")
    weight[29] = np.nan
    mlp().fit(x, y, sample_weight=weight, batch_size=8, shuffle=False, verbose=0, callbacks=[Watcher(tmp_path)])
    run = only_run(tmp_path)
    assert incidents(run) == [(3, "input", "sample_weight")]
    assert run.incidents[0].origin.samples == (5,)


# ---------------------------------------------------------------- data that comes in parts


class Parts(keras.utils.PyDataset):
    """Six batches of eight, made in other threads; `bad` is a batch that holds a NaN."""

    def __init__(self, bad: int | None = None, **more: Any) -> None:
        super().__init__(**more)
        self.x, self.y = data(48, bad=None if bad is None else 8 * bad + 2)

    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int) -> Any:
        return self.x[8 * number : 8 * number + 8], self.y[8 * number : 8 * number + 8]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_py_dataset(workers: int, tmp_path: Path) -> None:
    def train(*callbacks: Any) -> Any:
        model = mlp()
        model.fit(Parts(4, workers=workers), shuffle=False, epochs=2, verbose=0, callbacks=list(callbacks))
        return model

    plain, watched = train(), train(Watcher(tmp_path))
    assert same_bits(plain.variables, watched.variables)
    run = only_run(tmp_path)
    assert run.steps == 12
    assert incidents(run) == [(4, "input", "x")]
    assert run.incidents[0].origin.samples == (2,)


@pytest.mark.parametrize("jit", [False, True], ids=["uncompiled", "xla"])
def test_train_on_batch(jit: bool, tmp_path: Path) -> None:
    """A loop of one's own around Keras's step: the step to watch is `train_on_batch`."""
    x, y = data(48, bad=34)
    losses: dict[str, list[float]] = {}
    models = {}
    for how in ("plain", "watched"):
        model = models[how] = mlp(jit_compile=jit)
        step: Callable[..., Any] = model.train_on_batch
        if how == "watched":
            step = watch(model.train_on_batch, tmp_path, model=model, optimizer=model.optimizer)
        losses[how] = []
        for a, b in batches(x, y):
            losses[how].append(float(step(a, b)))
            model.reset_metrics()
    assert np.array_equal(losses["plain"], losses["watched"], equal_nan=True)
    assert same_bits(models["plain"].variables, models["watched"].variables)
    step.close()  # type: ignore[attr-defined]
    run = only_run(tmp_path)
    assert run.steps == 6
    assert incidents(run)[0][:2] == (4, "input")
    recorded = values(run, "loss/loss", "value")
    assert [recorded[n] for n in range(4)] == pytest.approx(losses["plain"][:4], rel=1e-5)
    assert {"first/kernel", "last/kernel"} <= {i.name for i in run.kind("gradient")}


# ---------------------------------------------------------------- accumulation and grouped steps


@pytest.mark.parametrize("jit", [False, True], ids=["uncompiled", "xla"])
def test_accumulation_by_keras_counts_micro_steps(jit: bool, tmp_path: Path) -> None:
    x, y = data(96)
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=4)
    model = mlp(optimizer=optimizer, jit_compile=jit)
    before = [np.asarray(w) for w in model.weights]
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[Watcher(tmp_path, every=1)])
    run = only_run(tmp_path)
    assert run.steps == 12
    steps = run.series("loss/loss", "value").steps.tolist()
    assert steps == list(range(12))
    kernel = values(run, "weight/first/kernel")
    assert [kernel[n] for n in range(3)] == pytest.approx([norm(before[0])] * 3, rel=ERROR)
    assert kernel[11] == pytest.approx(norm(model.weights[0]), rel=ERROR)
    moved = values(run, "update/first/kernel")
    assert [n for n in range(12) if moved[n] > 0] == [3, 7, 11]
    twin = mlp()
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((twin(x[:8]) - y[:8]) ** 2)
    gradient = tape.gradient(loss, twin.trainable_variables)[0]
    assert values(run, "gradient/first/kernel")[0] == pytest.approx(norm(gradient), rel=ERROR)


# ---------------------------------------------------------------- models of every make


def test_nested_models_frozen_parts_and_shared_layers(tmp_path: Path) -> None:
    """Names by place, a gradient for what is trained alone, and both calls of what is called twice."""

    def network() -> Any:
        seeded()
        body = keras.Sequential(
            [keras.Input((4,)), layers.Dense(5, activation="tanh", name="one"), layers.Dense(4, name="two")],
            name="body",
        )
        body.get_layer("one").trainable = False
        inputs = keras.Input((4,))
        shared = layers.Dense(4, activation="tanh", name="shared")
        outer = keras.Model(inputs, shared(body(shared(inputs))), name="outer")
        model = keras.Sequential([keras.Input((4,)), outer, layers.Dense(1, name="last")])
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
        return model

    x, y = data(40)
    twin, steps = network(), []
    for a, b in batches(x, y):
        outer = twin.get_layer("outer")
        shared, body = outer.get_layer("shared"), outer.get_layer("body")
        with tf.GradientTape() as tape:
            once = shared(a)
            middle = body.get_layer("one")(once)
            twice = shared(body.get_layer("two")(middle))
            loss = tf.reduce_mean((twin.get_layer("last")(twice) - b) ** 2)
        gradients = tape.gradient(loss, twin.trainable_variables)
        twin.optimizer.apply(gradients, twin.trainable_variables)
        by_name = {
            "outer/shared/kernel": shared.kernel,
            "outer/body/two/kernel": body.get_layer("two").kernel,
            "last/kernel": twin.get_layer("last").kernel,
        }
        found = {f"weight/{name}": np.asarray(v) for name, v in by_name.items()}
        places = {id(v): n for n, v in enumerate(twin.trainable_variables)}
        found |= {f"gradient/{name}": np.asarray(gradients[places[id(v)]]) for name, v in by_name.items()}
        found |= {
            "activation/outer/shared/output": once,
            "activation/outer/body/one/output": middle,
            "activation/outer/shared:1/output": twice,
            "weight/outer/body/one/kernel": np.asarray(body.get_layer("one").kernel),
        }
        steps.append({tag: np.asarray(value) for tag, value in found.items()})
    network().fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[Watcher(tmp_path)])
    run = only_run(tmp_path)
    check_norms(run, steps, steps[0])
    assert run.by_tag("gradient/outer/body/one/kernel") is None
    frozen = run.by_tag("weight/outer/body/one/kernel")
    assert frozen is not None
    assert not frozen.trainable


@pytest.mark.parametrize("jit", [False, True], ids=["uncompiled", "xla"])
@pytest.mark.parametrize("quantized", [False, True], ids=["lora", "int8"])
def test_lora_and_quantized_layers_train_as_ever(quantized: bool, jit: bool, tmp_path: Path) -> None:
    def train(*callbacks: Any) -> Any:
        seeded()
        model = keras.Sequential(
            [
                keras.Input((6,), dtype="int32"),
                layers.Embedding(10, 4, name="words"),
                layers.Flatten(),
                layers.Dense(8, activation="tanh", name="adapted"),
                layers.Dense(1, name="last"),
            ]
        )
        model.get_layer("adapted").enable_lora(2)
        model.get_layer("words").enable_lora(2)
        if quantized:
            model.quantize("int8")
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit)
        rng = np.random.default_rng(1)
        x, y = rng.integers(0, 10, (48, 6)), rng.normal(size=(48, 1)).astype("float32")
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=list(callbacks))
        return model

    plain, watched = train(), train(Watcher(tmp_path))
    assert same_bits(plain.variables, watched.variables)
    run = only_run(tmp_path)
    assert run.steps == 6
    assert run.incidents == ()
    assert {f"adapted/lora_kernel_{part}" for part in "ab"} <= {i.name for i in run.kind("gradient")}
    assert "adapted/kernel" not in {i.name for i in run.kind("gradient")}
    last = {"adapted/lora_kernel_b": watched.get_layer("adapted").lora_kernel_b}
    check_last(run, watched, last)
    assert ("adapted/kernel" in {i.name for i in run.kind("weight")}) == (not quantized)  # int8 holds no NaN


def test_models_built_anew_in_one_logdir(tmp_path: Path) -> None:
    """Each new model is an attempt that goes on counting; tensors that only one of them has stay apart."""
    x, y = data(32)
    for name, width in (("narrow", 3), ("wide", 7)):
        seeded()
        model = keras.Sequential([keras.Input((4,)), layers.Dense(width, name=name), layers.Dense(1, name="last")])
        model.compile("sgd", "mse", jit_compile=False)
        model.fit(x, y, batch_size=8, verbose=0, callbacks=[Watcher(tmp_path)])
    run = only_run(tmp_path)
    assert [(a.first_step, a.last_step) for a in run.attempts] == [(0, 3), (4, 7)]
    assert list(values(run, "weight/narrow/kernel")) == [0, 1, 2, 3]
    assert list(values(run, "weight/wide/kernel")) == [4, 5, 6, 7]
    assert list(values(run, "weight/last/kernel")) == list(range(8))


# ---------------------------------------------------------------- what runs beside it


@pytest.mark.parametrize("order", ["before", "behind"])
def test_backup_and_restore_beside_it(order: str, tmp_path: Path) -> None:
    """A fit that an error ended goes on from the backup: a new attempt from the step that the backup had reached."""
    x, y = data(64)

    class Failing(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if self.model.optimizer.iterations == 12:
                raise RuntimeError("the machine is gone")

    def fit(model: Any, *more: Any) -> Any:
        ours = Watcher(tmp_path / "run")
        backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
        both = [ours, backup] if order == "before" else [backup, ours]
        model.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0, callbacks=[*both, *more])
        ours.close()
        return model

    with pytest.raises(RuntimeError, match="the machine is gone"):
        fit(mlp(), Failing())
    resumed = fit(mlp())
    twin = mlp()
    twin.fit(x, y, batch_size=8, epochs=3, shuffle=False, verbose=0)
    assert same_bits(twin.variables, resumed.variables)
    run = only_run(tmp_path / "run")
    assert [(a.first_step, a.last_step) for a in run.attempts] == [(0, 11), (8, 23)]
    iterations = run.series("loss/loss", "value").iterations
    assert iterations.tolist() == list(range(1, 25))
    check_last(run, resumed, {"first/kernel": resumed.weights[0]})


def test_validation_inside_fit_is_told_and_not_counted(tmp_path: Path) -> None:
    x, y = data(64)
    model = mlp(metrics=["mae"])
    history = model.fit(
        x,
        y,
        validation_data=(x[:16], y[:16]),
        batch_size=8,
        epochs=3,
        verbose=0,
        callbacks=[Watcher(tmp_path)],
    ).history
    run = only_run(tmp_path)
    assert run.steps == 24
    told = [(note.step, note.text) for note in run.notes if note.kind == "validation"]
    expected = [
        (8 * n + 7, f"validation: loss {history['val_loss'][n]:.4g}, mae {history['val_mae'][n]:.4g}") for n in range(3)
    ]
    assert told == expected


def test_a_validation_that_is_not_finite_is_no_incident_of_training(tmp_path: Path) -> None:
    x, y = data(64)
    bad = y[:16].copy()
    bad[3] = np.nan
    model = mlp()
    model.fit(x, y, validation_data=(x[:16], bad), batch_size=8, verbose=0, callbacks=[Watcher(tmp_path)])
    run = only_run(tmp_path)
    assert run.incidents == ()
    assert [note.text for note in run.notes if note.kind == "validation"] == [
        "validation: loss nan (is its data finite?)"
    ]
