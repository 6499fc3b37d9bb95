"""Gradients, inputs and layers of every form: what is read of them, and where a blow-up in them is found."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from recorded import ERROR, batches, check_norms, data, incidents, mean_squared, mlp, norm, only_run, values

import tb_nanwatch as nanwatch

Watcher = functools.partial(nanwatch.NanWatch, trial_seconds=0)
watch = functools.partial(nanwatch.watch, trial_seconds=0)
layers = keras.layers
STYLES: dict[str, Callable[[Any], Any]] = {"eager": lambda step: step, "function": tf.function}


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize("style", STYLES)
def test_slices_of_an_embedding_and_gradients_that_are_none(style: str, tmp_path: Path) -> None:
    """IndexedSlices: the norm is that of the values. A variable that the loss does not use has no gradient."""
    table = tf.Variable(np.random.default_rng(1).normal(size=(10, 3)).astype("float32"), name="table")
    unused = tf.Variable(tf.ones(2), name="unused")
    optimizer = keras.optimizers.SGD(0.1)

    def train(ids: Any, target: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((tf.gather(table, ids) - target) ** 2)
        slices, none = tape.gradient(loss, [table, unused])
        assert isinstance(slices, tf.IndexedSlices)
        assert none is None
        optimizer.apply_gradients([(slices, table)])
        return loss

    optimizer.build([table])
    rng, here, steps = np.random.default_rng(2), table.numpy().astype(np.float64), []
    with watch(STYLES[style](train), tmp_path, variables=[table, unused], optimizer=optimizer, every=1) as step:
        for _ in range(5):
            ids, target = rng.permutation(10)[:4].astype(np.int32), rng.normal(size=(4, 3)).astype(np.float32)
            step(tf.constant(ids), tf.constant(target))
            slices = 2 * (here[ids] - target)
            here[ids] -= 0.1 * slices
            steps.append({"gradient/table": slices, "weight/table": here.copy(), "weight/unused": np.ones(2)})
    run = only_run(tmp_path)
    check_norms(run, steps, steps[0])
    assert run.by_tag("gradient/unused") is None
    assert [i.name for i in run.kind("input")] == ["target"]


CLIPPED: dict[str, dict[str, float]] = {
    "clipnorm": {"clipnorm": 0.01},
    "global_clipnorm": {"global_clipnorm": 0.01},
    "clipvalue": {"clipvalue": 0.001},
}


def clipped(how: str, gradients: list[Any]) -> list[Any]:
    """As Keras clips, in numpy."""
    (limit,) = CLIPPED[how].values()
    if how == "clipvalue":
        return [np.clip(g, -limit, limit) for g in gradients]
    if how == "clipnorm":
        return [g * min(1, limit / norm(g)) for g in gradients]
    whole = np.sqrt(sum(norm(g) ** 2 for g in gradients))
    return [g * min(1, limit / whole) for g in gradients]


@pytest.mark.parametrize("jit", [False, True], ids=["uncompiled", "xla"])
@pytest.mark.parametrize("how", CLIPPED)
def test_clipped_inside_the_optimizer(how: str, jit: bool, tmp_path: Path) -> None:
    """The norm before is that of the gradient; the one after has a series of its own."""
    x, y = data(40)
    optimizer = keras.optimizers.SGD(0.1, **CLIPPED[how])
    plain = mlp(optimizer=keras.optimizers.SGD(0.1, **CLIPPED[how]), jit_compile=jit)
    plain.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    model = mlp(optimizer=optimizer, jit_compile=jit)
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[Watcher(tmp_path, every=1)])
    assert all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(plain.weights, model.weights, strict=True))
    twin = mlp(optimizer=keras.optimizers.SGD(0.1, **CLIPPED[how]))
    steps = []
    names = [f"{layer.name}/{part}" for layer in twin.layers for part in ("kernel", "bias")]
    for a, b in batches(x, y):
        with tf.GradientTape() as tape:
            loss = mean_squared(b, twin(a, training=True))
        gradients = [np.asarray(g, np.float64) for g in tape.gradient(loss, twin.trainable_variables)]
        after = clipped(how, gradients)
        for v, g in zip(twin.trainable_variables, after, strict=True):
            v.assign_sub(0.1 * g.astype(np.float32))
        steps.append(
            {f"gradient/{n}": g for n, g in zip(names, gradients, strict=True)}
            | {f"applied/{n}": g for n, g in zip(names, after, strict=True)}
        )
    run = only_run(tmp_path)
    read = [tag for tag in steps[0] if run.by_tag(tag) is not None]
    check_norms(run, steps, read)
    assert {"gradient/first/kernel", "gradient/last/kernel"} <= set(read)
    if not jit:  # XLA makes them where it uses them
        assert read == list(steps[0])


@pytest.mark.parametrize("style", [*STYLES, "xla"])
def test_clipped_before_the_optimizer(style: str, tmp_path: Path) -> None:
    w, b = tf.Variable(tf.ones((4, 1)), name="w"), tf.Variable(tf.zeros(1), name="b")
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build([w, b])

    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ w + b - y) ** 2)
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, [w, b]), 0.5)
        optimizer.apply_gradients(zip(gradients, [w, b], strict=True))
        return loss

    x, y = data(40)
    here, offset, steps = np.ones((4, 1)), np.zeros(1), []
    make = STYLES.get(style, lambda step: tf.function(step, jit_compile=True))
    with watch(make(train), tmp_path, variables=[w, b], optimizer=optimizer, every=1) as step:
        for a, c in batches(x, y):
            step(tf.constant(a), tf.constant(c))
            error = a.astype(np.float64) @ here + offset - c
            g_w, g_b = 2 * a.T @ error / len(a), 2 * error.mean(0)
            share = min(1, 0.5 / np.sqrt(norm(g_w) ** 2 + norm(g_b) ** 2))
            here, offset = here - 0.1 * share * g_w, offset - 0.1 * share * g_b
            steps.append({"gradient/w": g_w, "applied/w": share * g_w, "weight/w": here})
    run = only_run(tmp_path)
    read = [tag for tag in steps[0] if run.by_tag(tag) is not None]
    check_norms(run, steps, read)
    assert style == "xla" or read == list(steps[0])


def test_gradients_that_nobody_clips_are_written_once(tmp_path: Path) -> None:
    x, y = data(24)
    mlp().fit(x, y, batch_size=8, verbose=0, callbacks=[Watcher(tmp_path)])
    assert only_run(tmp_path).kind("applied") == ()


# ---------------------------------------------------------------- inputs


@pytest.mark.parametrize("style", STYLES)
def test_inputs_of_every_form(style: str, tmp_path: Path) -> None:
    """Nested, ragged and sparse ones are measured by the values that they hold; integers, strings and truth values hold
    no NaN, and are left out."""
    w = tf.Variable(tf.ones(()), name="w")
    rng = np.random.default_rng(1)
    values_of = [rng.normal(size=7).astype("float32") for _ in range(4)]
    values_of[2][3] = np.inf

    def train(batch: Any, mask: Any) -> Any:
        with tf.GradientTape() as tape:
            parts = [
                tf.reduce_sum(batch["ragged"]),
                tf.sparse.reduce_sum(batch["nested"][0]),
                tf.reduce_sum(tf.where(mask, batch["nested"][1]["dense"], 0.0)),
                tf.cast(tf.reduce_sum(batch["ids"]), tf.float32),
            ]
            loss = w * tf.add_n(parts)
        w.assign_sub(1e-3 * tape.gradient(loss, w))
        return loss, tf.strings.length(batch["names"])

    with watch(STYLES[style](train), tmp_path, variables=[w], every=1) as step:
        for v in values_of:
            ragged = tf.RaggedTensor.from_row_lengths(tf.constant(v), [3, 0, 4])
            sparse = tf.sparse.SparseTensor([[n, n] for n in range(7)], tf.constant(2 * v.clip(-9, 9)), [7, 7])
            batch = {
                "ragged": ragged,
                "nested": (sparse, {"dense": tf.constant(np.stack([v, v]).clip(-9, 9))}),
                "ids": tf.constant([1, 2, 3]),
                "names": tf.constant(["a", "bc"]),
            }
            step(batch, tf.constant([[True] * 7, [False] * 7]))
    run = only_run(tmp_path)
    assert [i.name for i in run.kind("input")] == ["batch/ragged", "batch/nested/0", "batch/nested/1/dense"]
    for name, of in (("ragged", lambda v: v), ("nested/0", lambda v: 2 * v), ("nested/1/dense", lambda v: [v, v])):
        recorded = values(run, f"input/batch/{name}")
        finite = {n: norm(of(values_of[n])) for n in (0, 1, 3)}
        assert {n: recorded[n] for n in finite} == pytest.approx(finite, rel=ERROR)
    assert incidents(run)[0] == (2, "input", "batch/ragged")
    assert run.counts[2]["input/batch/ragged"].pos_inf == 1


def test_keras_fit_on_ragged_and_text(tmp_path: Path) -> None:
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    text = np.array(["good film", "bad film", "a good one", "a bad one"] * 6)
    y = np.array([1.0, 0, 1, 0] * 6, "float32")
    vectorize = layers.TextVectorization(max_tokens=20, output_sequence_length=4)
    vectorize.adapt(text)
    model = keras.Sequential(
        [
            keras.Input((), dtype="string"),
            vectorize,
            layers.Embedding(20, 3, mask_zero=True, name="words"),
            layers.LSTM(4, name="lstm"),
            layers.Dense(1, name="out"),
        ]
    )
    model.compile("adam", "mse", jit_compile=False)
    model.fit(tf.constant(text), y, batch_size=4, verbose=0, callbacks=[Watcher(tmp_path)])
    run = only_run(tmp_path)
    assert (run.steps, run.incidents) == (6, ())
    assert [i.name for i in run.kind("input")] == ["y"]
    assert {"words", "lstm", "out"} <= {i.layer.partition("/")[0] for i in run.kind("gradient")}


# ---------------------------------------------------------------- layers


class Exploding(layers.Layer):
    """A recurrent cell whose state grows, until its exponential is beyond float32."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.state_size = self.output_size = 3

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], 3), initializer="ones", name="kernel")

    def call(self, x: Any, states: Any) -> Any:
        state = states[0] + tf.exp(x @ self.kernel)
        return state, [state]


@pytest.mark.parametrize("jit", [False, True], ids=["uncompiled", "xla"])
@pytest.mark.parametrize("unroll", [False, True], ids=["loop", "unrolled"])
def test_a_cell_in_a_loop(unroll: bool, jit: bool, tmp_path: Path) -> None:
    """The layer's output is measured; what happens inside the loop is named by the replay."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((5, 2)),
            layers.RNN(Exploding(name="cell"), unroll=unroll, name="rnn"),
            layers.Dense(1, name="out"),
        ]
    )
    model.compile(keras.optimizers.SGD(1e-3), "mse", jit_compile=jit)
    rng = np.random.default_rng(1)
    x = (0.1 * rng.normal(size=(40, 5, 2))).astype("float32")
    x[21, 3] = 60
    y = np.ones((40, 1), "float32")
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[Watcher(tmp_path)])
    run = only_run(tmp_path)
    (incident,) = run.incidents
    origin = incident.origin
    assert (incident.first_step, origin.phase) == (2, "forward")
    assert origin.layer.startswith("rnn")
    assert (origin.op_type, origin.samples) == ("Exp", (5,))
    assert origin.source is not None
    assert origin.source.code.startswith("state = states[0] + tf.exp")


def test_attention_with_masks_of_minus_infinity(tmp_path: Path) -> None:
    """A mask of -inf is no incident. A row in which everything is masked is: softmax makes it NaN."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)

    class Attention(layers.Layer):
        def __init__(self, **more: Any) -> None:
            super().__init__(**more)
            self.query, self.key = layers.Dense(4, name="query"), layers.Dense(4, name="key")

        def call(self, x: Any, keep: Any) -> Any:
            scores = self.query(x) @ tf.transpose(self.key(x), [0, 2, 1])
            scores = nanwatch.tap("scores", scores + tf.where(keep[:, None, :] > 0, 0.0, -np.inf))
            return tf.nn.softmax(scores) @ x

    x_in, keep_in = keras.Input((3, 4), name="x"), keras.Input((3,), name="keep")
    attended = Attention(name="attention")(x_in, keep_in)
    model = keras.Model([x_in, keep_in], layers.Dense(1, name="out")(layers.Flatten()(attended)))
    model.compile("sgd", "mse", jit_compile=False)
    rng = np.random.default_rng(1)
    x, keep = rng.normal(size=(48, 3, 4)).astype("float32"), np.ones((48, 3), "float32")
    keep[::3, 1] = 0
    keep[36] = 0
    y = rng.normal(size=(48, 1)).astype("float32")
    model.fit([x, keep], y, batch_size=8, shuffle=False, verbose=0, callbacks=[Watcher(tmp_path)])
    run = only_run(tmp_path)
    (incident,) = run.incidents
    origin = incident.origin
    assert (incident.first_step, origin.phase, origin.layer, origin.op_type) == (4, "forward", "attention", "Softmax")
    assert origin.samples == (4,)
    assert run.counts[0]["activation/scores"].neg_inf == 9


def test_statistics_of_batch_normalization_that_are_lost(tmp_path: Path) -> None:
    """Its variance overflows: the layer is named, and its moving statistics are among what the damage reached."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), layers.BatchNormalization(name="norm"), layers.Dense(1, name="out")])
    model.compile("sgd", "mse", jit_compile=False)
    x, y = data(40)
    x[20] = 1e30
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[Watcher(tmp_path)])
    run = only_run(tmp_path)
    first = run.incidents[0]
    assert first.first_step == 2
    assert first.origin.layer == "norm"
    assert "norm/moving_variance" in {s.tensor for s in first.spread}
