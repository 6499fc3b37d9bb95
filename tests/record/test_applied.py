"""A remedy that `nanwatch try` asks for is what the training does, to the digit."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import graphs
import keras
import numpy as np
import pytest
import tensorflow as tf
from recorded import batches, data, mean_squared, mlp, only_run

import tb_nanwatch as nanwatch
from tb_nanwatch.format import treatment
from tb_nanwatch.format.telling import Listener
from tb_nanwatch.format.treatment import Place, Treatment
from tb_nanwatch.record.applied import initializer
from tb_nanwatch.record.applied.trial import TrialEnded

Asking = Callable[..., Callable[[], list[dict[str, Any]]]]
STEPS = 6


@pytest.fixture
def asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asking:
    """Puts a remedy into the environment; gives what reads the events that the recorder told."""

    def ask(remedy: str, value: str = "", steps: int = STEPS, place: Place | None = None) -> Any:
        report = tmp_path / "report"
        report.touch()
        asked = Treatment(remedy, value, steps, str(report), place)
        monkeypatch.setenv(treatment.VARIABLE, asked.as_json())
        return lambda: Listener(report).new()

    return ask


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in events if event["event"] != "step"]


def fitted(model: Any, x: Any, y: Any, *callbacks: Any, epochs: int = 2) -> list[Any]:
    model.fit(x, y, batch_size=8, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks))
    return [np.asarray(v) for v in model.trainable_variables]


def assert_same(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-6)


# ---------------------------------------------------------------- the run


def test_a_fit_stops_and_the_logdir_stays_as_it_was(tmp_path: Path, asking: Asking) -> None:
    told = asking("control", steps=3)
    model = mlp()
    fitted(model, *data(), nanwatch.NanWatch(tmp_path / "logs"))
    assert kinds(told()) == ["started", "applied", "done"]
    assert [p.name for p in (tmp_path / "logs").iterdir()] == ["try"]
    run = only_run(tmp_path / "logs/try/control")
    assert (run.steps, run.header.options["replay"]) == (3, "False")
    assert int(model.optimizer.iterations) == 3


def test_a_second_fit_ends_the_program(tmp_path: Path, asking: Asking) -> None:
    told = asking("control", steps=3)
    model, watcher = mlp(), nanwatch.NanWatch(tmp_path / "logs")
    fitted(model, *data(), watcher)
    with pytest.raises(TrialEnded) as ended:
        fitted(model, *data(), watcher)
    assert ended.value.code == treatment.ENDED
    assert int(model.optimizer.iterations) == 3
    assert kinds(told()) == ["started", "applied", "done"]


def test_a_loop_is_ended(tmp_path: Path, asking: Asking) -> None:
    told = asking("control", steps=4)
    variable, step = by_hand(0.1)
    watched = nanwatch.watch(step, tmp_path / "logs", variables=[variable])
    for _ in range(3):
        watched(*data(8))
    with pytest.raises(TrialEnded):
        watched(*data(8))
    assert told()[-1] == {"event": "done", "steps": 4}
    with pytest.raises(TrialEnded):
        watched(*data(8))
    assert only_run(tmp_path / "logs/try/control").steps == 4


def test_the_first_bad_step_ends_it(tmp_path: Path, asking: Asking) -> None:
    told = asking("control", steps=8)
    x, y = data(bad=19)
    fitted(mlp(), x, y, nanwatch.NanWatch(tmp_path / "logs"))
    last = told()[-1]
    assert (last["event"], last["step"]) == ("nonfinite", 2)
    assert only_run(tmp_path / "logs/try/control").steps == 3


def test_a_second_trial_gets_a_folder_of_its_own(tmp_path: Path, asking: Asking) -> None:
    (tmp_path / "logs/try/lower_learning_rate_0.1").mkdir(parents=True)
    asking("lower_learning_rate", "0.1", steps=2)
    fitted(mlp(), *data(), nanwatch.NanWatch(tmp_path / "logs"))
    assert only_run(tmp_path / "logs/try/lower_learning_rate_0.1-2").steps == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[]", "no JSON object"),
        ('{"remedy": "prayer", "steps": 3}', "unknown remedy 'prayer'; there is lower_learning_rate"),
        ('{"remedy": "lower_learning_rate", "value": "3", "steps": 3}', "a factor between 0 and 1"),
        ('{"remedy": "clip_gradients", "value": "norm:nan", "steps": 3}', "norm:BOUND"),
        ('{"remedy": "control", "steps": true}', "steps must be"),
        ('{"remedy": "control", "steps": 3, "label": "../../etc"}', "label must be control"),
        ('{"remedy": "control", "steps": 3, "report": "/does/not/exist"}', "existing file"),
        ('{"remedy": "guard_division", "steps": 3}', "place of an operation"),
        ('{"remedy": "guard_division", "steps": 3, "place": {"op_type": "a b"}}', "place.op_type"),
    ],
)
def test_a_bad_variable_changes_nothing(tmp_path: Path, monkeypatch: Any, text: str, why: str) -> None:
    monkeypatch.setenv(treatment.VARIABLE, text)
    variable, step = by_hand(0.1)
    with pytest.warns(RuntimeWarning, match=treatment.VARIABLE) as warned:
        watched = nanwatch.watch(step, tmp_path / "logs", variables=[variable])
    assert why in str(warned[0].message)
    for _ in range(5):
        watched(*data(8))
    watched.close()
    assert only_run(tmp_path / "logs").steps == 5


# ---------------------------------------------------------------- learning rate

OPTIMIZERS: dict[str, Callable[[float], Any]] = {
    "momentum": lambda f: keras.optimizers.SGD(0.1 * f, momentum=0.9),
    "adamw": lambda f: keras.optimizers.AdamW(0.02 * f, weight_decay=0.1),
    "scaled": lambda f: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1 * f)),
    "schedule": lambda f: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.2 * f, 2, 0.5)),
}


@pytest.mark.parametrize(("name", "jit_compile"), [*((name, False) for name in OPTIMIZERS), ("schedule", True)])
def test_lower_learning_rate_in_fit(tmp_path: Path, asking: Asking, name: str, jit_compile: bool) -> None:
    expected = fitted(mlp(optimizer=OPTIMIZERS[name](0.1), jit_compile=jit_compile), *data(48), epochs=1)
    told = asking("lower_learning_rate", "0.1")
    model = mlp(optimizer=OPTIMIZERS[name](1.0), jit_compile=jit_compile)
    assert_same(fitted(model, *data(48), nanwatch.NanWatch(tmp_path / "logs"), epochs=1), expected)
    assert told()[1] == {"event": "applied", "words": "learning rate times 0.1"}
    run = only_run(tmp_path / "logs/try/lower_learning_rate_0.1")
    assert ("trial", "learning rate times 0.1") in [(note.kind, note.text) for note in run.notes]


def rates(logdir: Path) -> list[float]:
    """The learning rates that a trial recorded."""
    return [float(value) for value in only_run(logdir).series("scalar/learning_rate", "value").values]


def test_the_rate_that_is_recorded_is_the_one_that_was_applied(tmp_path: Path, asking: Asking) -> None:
    asking("lower_learning_rate", "0.1")
    model = mlp(optimizer=OPTIMIZERS["momentum"](1.0))
    fitted(model, *data(48), nanwatch.NanWatch(tmp_path / "logs"), epochs=1)
    np.testing.assert_allclose(rates(tmp_path / "logs/try/lower_learning_rate_0.1"), [0.01] * STEPS, rtol=1e-6)
    assert float(model.optimizer.learning_rate) == pytest.approx(0.1)


def test_the_rate_that_a_graph_is_fed_is_recorded(tmp_path: Path, asking: Asking) -> None:
    asking("lower_learning_rate", "0.1")
    program = graphs.regression(optimizer=lambda: graphs.tf1.train.GradientDescentOptimizer(0.1))
    trained(tmp_path, program, feeds_of(program))
    np.testing.assert_allclose(rates(tmp_path / "logs/try/lower_learning_rate_0.1"), [0.01] * STEPS, rtol=1e-6)


# two replicas, in a process of their own


@pytest.mark.parametrize(
    ("remedy", "value"),
    [("lower_learning_rate", "0.1"), ("clip_gradients", "norm:0.5"), ("clip_gradients", "value:0.1")],
)
def test_on_replicas(tmp_path: Path, remedy: str, value: str) -> None:
    """Once for all of them: as if the program had the remedy itself."""
    command = [sys.executable, str(Path(__file__).with_name("mirrored_trial.py")), str(tmp_path), remedy, value]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")] or [done.stderr[-3000:]]
    result = json.loads(line.removeprefix("RESULT "))
    assert [event["event"] for event in result["told"]] == ["started", "applied"]
    assert result["steps"] == STEPS
    for found, expected, plain in zip(result["found"], result["expected"], result["plain"], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert not np.allclose(plain, expected, rtol=1e-2)
    np.testing.assert_allclose(result["rates"], [0.02 if remedy == "lower_learning_rate" else 0.2] * STEPS, rtol=1e-6)


def test_a_callback_that_sets_the_rate_sets_it_lowered(tmp_path: Path, asking: Asking) -> None:
    def scheduler(factor: float) -> Any:
        return keras.callbacks.LearningRateScheduler(lambda epoch: factor * (0.2, 0.05)[epoch])

    expected = fitted(mlp(optimizer=keras.optimizers.SGD(0.3)), *data(24), scheduler(0.1))
    asking("lower_learning_rate", "0.1")
    model = mlp(optimizer=keras.optimizers.SGD(0.3))
    assert_same(fitted(model, *data(24), scheduler(1.0), nanwatch.NanWatch(tmp_path / "logs")), expected)
    assert float(model.optimizer.learning_rate) == pytest.approx(0.05)  # as its owner sees it


def by_hand(rate: float, compiled: bool = True) -> tuple[Any, Any]:
    """A linear model and its step, without an optimizer."""
    variable = tf.Variable(np.ones((4, 1), np.float32), name="w")

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = mean_squared(y, tf.matmul(x, variable))
        variable.assign_sub(rate * tape.gradient(loss, variable))
        return loss

    return variable, tf.function(step) if compiled else step


def linear(rate: float, x: Any, y: Any, steps: int, clip: Callable[[Any], Any] = lambda g: g) -> Any:
    """The same in numpy, float64[4, 1]."""
    w = np.ones((4, 1))
    for _ in range(steps):
        gradient = 2 / len(x) * x.T.astype(np.float64) @ (x @ w - y)
        w = w - rate * clip(gradient)
    return w


def run_to_the_end(watched: Any, *batch: Any) -> None:
    with pytest.raises(TrialEnded):
        forever(watched, *batch)


def forever(step: Any, *batch: Any) -> None:
    for _ in range(STEPS + 1):
        step(*batch)


@pytest.mark.parametrize("compiled", [True, False])
def test_updates_are_scaled_where_there_is_no_optimizer(tmp_path: Path, asking: Asking, compiled: bool) -> None:
    told = asking("lower_learning_rate", "0.1")
    x, y = data(8)
    variable, step = by_hand(0.5, compiled)
    run_to_the_end(nanwatch.watch(step, tmp_path / "logs", variables=[variable]), tf.constant(x), tf.constant(y))
    np.testing.assert_allclose(variable.numpy(), linear(0.05, x, y, STEPS), rtol=1e-5)
    assert told()[1]["words"] == "updates of the weights times 0.1"


def test_two_optimizers(tmp_path: Path, asking: Asking) -> None:
    asking("lower_learning_rate", "0.01")
    x, y = data(8)
    one, two = (tf.Variable(np.ones((4, 1), np.float32), name=name) for name in "ab")
    optimizers = [keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.2)]

    @tf.function
    def step(x: Any, y: Any) -> None:
        for variable, optimizer in zip((one, two), optimizers, strict=True):
            with tf.GradientTape() as tape:
                loss = mean_squared(y, tf.matmul(x, variable))
            optimizer.apply_gradients([(tape.gradient(loss, variable), variable)])

    run_to_the_end(nanwatch.watch(step, tmp_path / "logs", variables=[one, two], optimizer=optimizers[0]), x, y)
    np.testing.assert_allclose(one.numpy(), linear(0.001, x, y, STEPS), rtol=1e-5)
    np.testing.assert_allclose(two.numpy(), linear(0.002, x, y, STEPS), rtol=1e-5)


# ---------------------------------------------------------------- gradients


def bound(kind: str, limit: float) -> Callable[[Any], Any]:
    if kind == "value":
        return lambda g: np.clip(g, -limit, limit)
    return lambda g: g * min(1.0, limit / np.linalg.norm(g))


@pytest.mark.parametrize("value", ["norm:1", "value:0.5"])
@pytest.mark.parametrize("how", ["by hand", "keras", "unnamed keras", "scaled"])
def test_clip_gradients(tmp_path: Path, asking: Asking, value: str, how: str) -> None:
    told = asking("clip_gradients", value)
    x, y = data(8)
    y *= 10
    kind, _, limit = value.partition(":")
    expected = linear(0.1, x, y, STEPS, bound(kind, float(limit)))
    assert np.abs(expected - linear(0.1, x, y, STEPS)).max() > 0.1
    if how == "by hand":
        variable, step = by_hand(0.1)
        optimizer: Any = None
    else:
        variable, optimizer = tf.Variable(np.ones((4, 1), np.float32), name="w"), keras.optimizers.SGD(0.1)
        if how == "scaled":
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=64.0)

        @tf.function
        def step(x: Any, y: Any) -> None:
            with tf.GradientTape() as tape:
                loss = mean_squared(y, tf.matmul(x, variable))
                scaled = optimizer.scale_loss(loss)
            optimizer.apply_gradients([(tape.gradient(scaled, variable), variable)])

    given = None if how == "unnamed keras" else optimizer
    run_to_the_end(nanwatch.watch(step, tmp_path / "logs", variables=[variable], optimizer=given), x, y)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5)
    assert told()[1]["words"].startswith("gradients clipped by ")


def test_clipping_by_global_norm_in_fit(tmp_path: Path, asking: Asking) -> None:
    x, y = data(48)
    expected = fitted(mlp(optimizer=keras.optimizers.SGD(0.1, global_clipnorm=0.3)), x, y * 9, epochs=1)
    asking("clip_gradients", "norm:0.3")
    model = mlp(optimizer=keras.optimizers.SGD(0.1))
    assert_same(fitted(model, x, y * 9, nanwatch.NanWatch(tmp_path / "logs"), epochs=1), expected)


def test_a_step_without_gradients_cannot_be_clipped(tmp_path: Path, asking: Asking) -> None:
    told = asking("clip_gradients", "norm:1")
    variable = tf.Variable(1.0)
    watched = nanwatch.watch(lambda: variable.assign_sub(0.1), tmp_path / "logs", variables=[variable])
    with pytest.raises(TrialEnded):
        watched()
    assert kinds(told()) == ["started", "not_applicable"]


# ---------------------------------------------------------------- initial weights


def test_initializer(tmp_path: Path, asking: Asking) -> None:
    told = asking("initializer", steps=1)
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    layers = keras.layers
    wide = keras.initializers.RandomNormal(stddev=5.0)
    model = keras.Sequential(
        [
            keras.Input((20, 40)),
            layers.SimpleRNN(64, kernel_initializer=wide, recurrent_initializer=wide, name="rnn"),
            layers.Dense(128, kernel_initializer=wide, name="plain"),
            layers.LayerNormalization(),
            layers.ReLU(),
            layers.Dense(96, activation="tanh", kernel_initializer=wide, name="bounded"),
        ]
    )
    model.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
    before = np.random.get_state()[1].copy()  # noqa: NPY002  # the program's own
    fitted(
        model, np.zeros((8, 20, 40), np.float32), np.zeros((8, 96), np.float32), nanwatch.NanWatch(tmp_path / "logs")
    )
    kernel, recurrent, plain, bounded = (np.asarray(v) for v in model.trainable_variables if len(v.shape) == 2)
    np.testing.assert_allclose(recurrent.T @ recurrent, np.eye(64), atol=1e-5)
    assert plain.std() == pytest.approx(np.sqrt(2 / 64), rel=0.05)  # He, by the ReLU behind it
    assert np.abs(plain).max() <= 2 * np.sqrt(2 / 64) / 0.8796 + 1e-6
    for glorot, fans in ((kernel, 40 + 64), (bounded, 128 + 96)):
        assert glorot.std() == pytest.approx(np.sqrt(2 / fans), rel=0.05)
        assert np.abs(glorot).max() <= np.sqrt(6 / fans)
    assert kinds(told()) == ["started", "applied", "done"]
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_no_initializer_for_a_training_that_goes_on(tmp_path: Path, asking: Asking) -> None:
    model, (x, y) = mlp(), data()
    trained = fitted(model, x, y)
    told = asking("initializer")
    with pytest.raises(TrialEnded):
        fitted(model, x, y, nanwatch.NanWatch(tmp_path / "logs"))
    assert "goes on after 16 updates" in told()[-1]["why"]
    assert_same([np.asarray(v) for v in model.trainable_variables], trained)


def test_kernels_differ() -> None:
    one, two = (initializer.draw("dense/kernel", (8, 8), "relu", number) for number in (0, 1))
    assert not (one == two).any()


# ---------------------------------------------------------------- the batch


@pytest.mark.parametrize("jit_compile", [False, True])
def test_bad_samples_are_replaced(tmp_path: Path, asking: Asking, jit_compile: bool) -> None:
    x, y = data(48)
    clean, bad = x.copy(), x.copy()
    clean[[9, 10]] = x[[8, 11]][[1, 0]]  # rows 1 and 2 of the second batch: the good ones are 0, 3, 4 ...
    clean[9], clean[10] = x[11], x[12]
    bad[9], bad[10, 2] = np.nan, np.inf
    labels = y.copy()
    labels[9], labels[10] = y[11], y[12]
    expected = fitted(mlp(jit_compile=jit_compile), clean, labels, epochs=1)
    told = asking("clean_input", "finite")
    model = mlp(jit_compile=jit_compile)
    assert_same(fitted(model, bad, y, nanwatch.NanWatch(tmp_path / "logs"), epochs=1), expected)
    assert kinds(told()) == ["started", "applied", "done"]
    assert only_run(tmp_path / "logs/try/clean_input_finite").incidents == ()


def test_a_batch_without_good_samples_stays(tmp_path: Path, asking: Asking) -> None:
    told = asking("clean_input", "finite")
    x, y = data(16)
    fitted(mlp(), x * np.nan, y, nanwatch.NanWatch(tmp_path / "logs"))
    assert told()[-1]["event"] == "nonfinite"


def test_inputs_are_scaled_by_the_first_batch(tmp_path: Path, asking: Asking) -> None:
    told = asking("clean_input", "scale")
    x, y = data(8)
    variable, step = by_hand(0.1)
    watched = nanwatch.watch(step, tmp_path / "logs", variables=[variable])
    run_to_the_end(watched, tf.constant(x * 1000), tf.constant(y))
    largest = np.abs(x * 1000).max()
    np.testing.assert_allclose(variable.numpy(), linear(0.1, x * 1000 / largest, y, STEPS), rtol=1e-4)
    assert told()[1]["words"] == f"inputs divided by {largest:g}, their largest magnitude in the first batch"


def test_ordinary_inputs_are_not_scaled(tmp_path: Path, asking: Asking) -> None:
    told = asking("clean_input", "scale")
    fitted(mlp(), *data(), nanwatch.NanWatch(tmp_path / "logs"))
    assert kinds(told()) == ["started", "not_applicable"]
    assert "ordinary size" in told()[-1]["why"]


# ---------------------------------------------------------------- operations and types


def risky() -> tuple[Any, Any, int]:
    """A step whose loss takes log(0), and the line on which it does."""
    variable = tf.Variable(np.ones((4, 1), np.float32), name="w")

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            p = tf.nn.relu(tf.matmul(x, variable))
            loss = -tf.reduce_mean(tf.math.log(p))
        variable.assign_sub(0.1 * tape.gradient(loss, variable))
        return loss

    line = inspect.getsourcelines(risky)[1] + 8
    return variable, step, line


def test_an_operation_is_guarded_at_its_line(tmp_path: Path, asking: Asking) -> None:
    variable, step, line = risky()
    told = asking("clip_predictions_or_from_logits", place=Place("Log", __file__, line))
    x = tf.constant([[-1.0, 0, 0, 0], [1, 1, 0, 0]])
    watched = nanwatch.watch(step, tmp_path / "logs", variables=[variable])
    run_to_the_end(watched, x)
    assert "log(max(x, 1e-10))" in told()[1]["words"]
    assert told()[-1] == {"event": "done", "steps": STEPS}
    expected = -(np.log(np.float32(1e-10)) + np.log(2.0)) / 2
    losses = only_run(tmp_path / "logs/try/clip_predictions_or_from_logits").series("loss/loss", "value").values
    assert losses[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("remedy", "op_type", "shift", "why"),
    [
        ("clip_predictions_or_from_logits", "Log", 1, "was not met"),
        ("clip_predictions_or_from_logits", "Sqrt", 0, "was not met"),
        ("guard_division", "Log", 0, "what guards Log is clip_predictions_or_from_logits"),
        ("guard_division", "Conv2D", 0, "no guard is known for Conv2D"),
    ],
)
def test_no_guard_no_run(tmp_path: Path, asking: Asking, remedy: str, op_type: str, shift: int, why: str) -> None:
    variable, step, line = risky()
    told = asking(remedy, place=Place(op_type, __file__, line + shift))
    with pytest.raises(TrialEnded):
        nanwatch.watch(step, tmp_path / "logs", variables=[variable])(tf.ones((2, 4)))
    assert why in told()[-1]["why"]


def test_float32(tmp_path: Path, asking: Asking) -> None:
    told = asking("mixed_precision_policy", "float32", steps=2)
    keras.backend.clear_session()
    layers = [keras.layers.Dense(n, activation="relu", dtype="mixed_float16") for n in (6, 1)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    fitted(model, *data(), nanwatch.NanWatch(tmp_path / "logs"))
    assert kinds(told()) == ["started", "applied", "done"]
    run = only_run(tmp_path / "logs/try/mixed_precision_policy_float32")
    assert {info.dtype for info in run.kind("activation")} == {"float32"}


def test_float32_already(tmp_path: Path, asking: Asking) -> None:
    told = asking("mixed_precision_policy", "float32")
    with pytest.raises(TrialEnded):
        fitted(mlp(), *data(), nanwatch.NanWatch(tmp_path / "logs"))
    assert "smaller than float32" in told()[-1]["why"]


# ---------------------------------------------------------------- TensorFlow 1


def trained(tmp_path: Path, program: graphs.Program, feeds: list[dict[Any, Any]], hook: bool = False) -> list[Any]:
    """Weights after the trial has ended the session's loop."""
    logdir = tmp_path / "logs"
    with program.graph.as_default():
        weights = [v for _, v in program.grads_and_vars]
        if hook:
            watcher = nanwatch.NanWatchHook(logdir, loss=program.loss)
            with graphs.tf1.train.MonitoredSession(hooks=[watcher]) as monitored:
                for feed in feeds:
                    if not monitored.should_stop():
                        monitored.run(program.train_op, feed)
                        after = monitored._tf_sess().run(weights)
            return after
        with graphs.tf1.Session() as sess:
            sess.run(graphs.tf1.global_variables_initializer())
            nanwatch.watch_session(sess, logdir, loss=program.loss)
            with pytest.raises(TrialEnded):
                run_all(sess, program, feeds)
            return list(sess.run(weights))


def run_all(sess: Any, program: graphs.Program, feeds: list[dict[Any, Any]]) -> None:
    for feed in feeds:
        sess.run(program.train_op, feed)


def unwatched(program: graphs.Program, feeds: list[dict[Any, Any]]) -> list[Any]:
    with program.graph.as_default(), graphs.tf1.Session() as sess:
        sess.run(graphs.tf1.global_variables_initializer())
        run_all(sess, program, feeds)
        return list(sess.run([v for _, v in program.grads_and_vars]))


def feeds_of(program: graphs.Program, steps: int = STEPS, scale: float = 1.0) -> list[dict[Any, Any]]:
    return [program.feed(x * scale, y) for x, y in batches(*data(8 * steps))]


@pytest.mark.parametrize("hook", [False, True])
@pytest.mark.parametrize("optimizer", ["GradientDescentOptimizer", "AdamOptimizer"])
def test_a_constant_rate_of_a_graph(tmp_path: Path, asking: Asking, optimizer: str, hook: bool) -> None:
    make = getattr(graphs.tf1.train, optimizer)
    slow = graphs.regression(optimizer=lambda: make(0.01))
    expected = unwatched(slow, feeds_of(slow))
    told = asking("lower_learning_rate", "0.1")
    fast = graphs.regression(optimizer=lambda: make(0.1))
    assert_same(trained(tmp_path, fast, feeds_of(fast), hook), expected)
    assert kinds(told()) == ["started", "applied", "done"]


def test_a_schedule_of_a_graph(tmp_path: Path, asking: Asking) -> None:
    def decaying(rate: float) -> Any:
        step = graphs.tf1.train.get_or_create_global_step()
        return graphs.tf1.train.GradientDescentOptimizer(graphs.tf1.train.exponential_decay(rate, step, 2, 0.5))

    slow = graphs.regression(optimizer=lambda: decaying(0.02))
    expected = unwatched(slow, feeds_of(slow))
    asking("lower_learning_rate", "0.1")
    fast = graphs.regression(optimizer=lambda: decaying(0.2))
    assert_same(trained(tmp_path, fast, feeds_of(fast)), expected)


@pytest.mark.parametrize("value", ["norm:0.2", "value:0.05"])
def test_gradients_of_a_graph(tmp_path: Path, asking: Asking, value: str) -> None:
    rng = np.random.default_rng(7)
    w1, b1, w2, b2 = rng.normal(size=(4, 5)), np.zeros(5), rng.normal(size=(5, 1)), np.zeros(1)
    kind, _, limit = value.partition(":")
    for x, y in batches(*data(8 * STEPS)):
        hidden = np.tanh(x @ w1 + b1)
        back = 2 * (hidden @ w2 + b2 - y) / len(x)
        inside = (back @ w2.T) * (1 - hidden**2)
        found = [x.T @ inside, inside.sum(0), hidden.T @ back, back.sum(0)]
        flat = bound(kind, float(limit))(np.concatenate([g.ravel() for g in found]))
        parts = np.split(flat, np.cumsum([g.size for g in found])[:-1])
        w1, b1, w2, b2 = (w - 0.1 * g.reshape(w.shape) for w, g in zip((w1, b1, w2, b2), parts, strict=True))
    told = asking("clip_gradients", value)
    program = graphs.regression()
    assert_same(trained(tmp_path, program, feeds_of(program)), [w1, b1, w2, b2])
    assert kinds(told()) == ["started", "applied", "done"]


def test_random_gradients_of_a_graph_are_not_computed_twice(tmp_path: Path, asking: Asking) -> None:
    told = asking("clip_gradients", "norm:1")
    program = graphs.regression()
    with program.graph.as_default():
        (w,) = (v for v in graphs.tf1.trainable_variables() if v.name == "out/w:0")
        noisy = program.loss + tf.reduce_sum(w * tf.random.normal([5, 1]))
        program.train_op = graphs.tf1.train.GradientDescentOptimizer(0.1).minimize(noisy)
    trained(tmp_path, program, feeds_of(program))
    assert "RandomStandardNormal" in told()[-1]["why"]


def test_fed_samples_and_fed_scale(tmp_path: Path, asking: Asking) -> None:
    program = graphs.regression()
    feeds = feeds_of(program)
    clean, bad = feeds[2][program.x].copy(), feeds[2][program.x].copy()
    bad[1, 2] = np.nan
    clean[1] = clean[2]
    labels = feeds[2][program.y].copy()
    labels[1] = labels[2]
    expected = unwatched(program, [*feeds[:2], program.feed(clean, labels), *feeds[3:]])
    told = asking("clean_input", "finite")
    feeds[2] = program.feed(bad, feeds[2][program.y])
    assert_same(trained(tmp_path, program, feeds), expected)
    assert kinds(told()) == ["started", "applied", "done"]
    assert only_run(tmp_path / "logs/try/clean_input_finite").incidents == ()


def test_fed_inputs_are_scaled(tmp_path: Path, asking: Asking) -> None:
    program = graphs.regression()
    large = feeds_of(program, scale=100.0)
    largest = np.abs(large[0][program.x]).max()
    expected = unwatched(program, [program.feed(f[program.x] / largest, f[program.y]) for f in large])
    asking("clean_input", "scale")
    program = graphs.regression()
    assert_same(trained(tmp_path, program, feeds_of(program, scale=100.0)), expected)


def test_a_hook_cannot_change_what_is_fed(tmp_path: Path, asking: Asking) -> None:
    told = asking("clean_input", "finite")
    program = graphs.regression()
    with pytest.raises(TrialEnded):
        trained(tmp_path, program, feeds_of(program), hook=True)
    assert "watch_session" in told()[-1]["why"]


def test_initial_weights_of_a_graph(tmp_path: Path, asking: Asking) -> None:
    asking("initializer", steps=1)
    program = graphs.regression(optimizer=lambda: graphs.tf1.train.GradientDescentOptimizer(0.0))
    w1, b1, w2, b2 = trained(tmp_path, program, feeds_of(program))
    np.testing.assert_allclose(w1, initializer.draw("hidden/w", (4, 5), "tanh", 0), rtol=1e-6)
    np.testing.assert_allclose(w2, initializer.draw("out/w", (5, 1), "", 1), rtol=1e-6)
    assert not b1.any()
    assert not b2.any()


def test_an_operation_of_a_graph_is_fed_what_it_can_take(tmp_path: Path, asking: Asking) -> None:
    graph = tf.Graph()
    with graph.as_default():
        x = graphs.tf1.placeholder(tf.float32, [None, 2], "x")
        w = graphs.variable("w", np.ones((2, 1)))
        loss = -tf.reduce_mean(tf.math.log(tf.nn.relu(tf.matmul(x, w)), name="risky"))
        optimizer = graphs.tf1.train.GradientDescentOptimizer(0.1)
        pairs = optimizer.compute_gradients(loss)
        program = graphs.Program(graph, loss, pairs, optimizer.apply_gradients(pairs), x, None)
    feeds = [{x: np.array([[-1, 0], [1, 1]], np.float32)}] * STEPS
    told = asking("clip_predictions_or_from_logits", place=Place("Log", "train.py", 7, "risky"))
    trained(tmp_path, program, feeds)
    assert told()[-1] == {"event": "done", "steps": STEPS}
    losses = only_run(tmp_path / "logs/try/clip_predictions_or_from_logits").series("loss/loss", "value").values
    assert losses[0] == pytest.approx(-(np.log(np.float32(1e-10)) + np.log(2.0)) / 2, rel=1e-5)
