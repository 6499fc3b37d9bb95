"""An error that ends a step is noted with its own words and line; the end of the data, and an interrupt, are none."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from recorded import only_run

import tb_nanwatch as nanwatch
from tb_nanwatch.diagnose import examine
from tb_nanwatch.record import failure
from tb_nanwatch.record.graph.recorder import UNKNOWN, GraphRecorder

LABELS = "Received a label value of 7 which is outside the valid range of [0, 3)."


def classifier() -> Any:
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="out")])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return model


def raised(logdir: Path) -> list[tuple[int, str]]:
    return [(note.step, note.text) for note in only_run(logdir).notes if note.kind == "raised"]


def test_a_bad_label_ends_a_fit(tmp_path: Path) -> None:
    x, y = np.ones((40, 4), np.float32), np.zeros(40, np.int64)
    y[29] = 7
    with pytest.raises(tf.errors.InvalidArgumentError):
        classifier().fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[nanwatch.NanWatch(tmp_path)])
    ((step, text),) = raised(tmp_path)
    assert step == 3
    assert text.startswith(f"InvalidArgumentError: {LABELS} Label values: 0 0 0 0 0 7 0 0 (test_failure.py, line ")
    assert only_run(tmp_path).steps == 3


@pytest.mark.parametrize("style", [lambda f: f, tf.function], ids=["eager", "function"])
def test_an_error_of_a_watched_step(style: Callable[[Any], Any], tmp_path: Path) -> None:
    weights = tf.Variable(tf.ones([4, 3]), name="weights")

    def train(x: Any, index: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.gather(x, index) @ weights)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return loss

    with nanwatch.watch(style(train), tmp_path, variables=[weights]) as step:
        step(tf.ones([2, 4]), tf.constant([1]))
        for _ in range(failure.MOST + 3):
            with pytest.raises(tf.errors.InvalidArgumentError):
                step(tf.ones([2, 4]), tf.constant([9]))
    notes = raised(tmp_path)
    assert len(notes) == failure.MOST
    assert notes[0][0] == 1
    assert "indices[0] = 9 is not in [0, 2)" in notes[0][1]
    assert "test_failure.py, line" in notes[0][1]


def test_an_error_of_a_session(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        y = tf.compat.v1.placeholder(tf.int32, [None])
        w = tf.compat.v1.get_variable("out/w", [3], initializer=tf.zeros_initializer())
        logits = tf.tile(w[None], [tf.shape(y)[0], 1])
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        session.run(tf.compat.v1.global_variables_initializer())
        nanwatch.watch_session(session, tmp_path, loss=loss)
        session.run(train, {y: [0, 1]})
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(train, {y: [0, 7]})
    ((step, text),) = raised(tmp_path)
    assert step == 1
    assert LABELS in text


def ends(error: BaseException) -> Callable[[], None]:
    def train() -> None:
        raise error

    return train


@pytest.mark.parametrize(
    "error", [StopIteration(), KeyboardInterrupt(), SystemExit(1), tf.errors.OutOfRangeError(None, None, "end")]
)
def test_what_is_no_failure(error: BaseException, tmp_path: Path) -> None:
    step = nanwatch.watch(ends(error), tmp_path, variables=[tf.Variable(1.0, name="w")])
    with step, pytest.raises(type(error)):
        step()
    assert raised(tmp_path) == []


def test_words() -> None:
    assert failure.told(ValueError()) == "ValueError: no message"
    wrapped = ValueError("one\n\x1b[1mtwo\x1b[0m\n\nArguments received by f():\n  x")
    assert failure.told(wrapped) == "ValueError: one two"
    assert len(failure.told(ValueError("x" * 9999))) == len("ValueError: ") + failure.LONGEST


# ---------------------------------------------------------------- a hook, which nobody tells

tf1 = tf.compat.v1


def monitored(logdir: Path, body: Callable[[Any, Any, Any], None], others: Any = (), finish: bool = True) -> None:
    """A MonitoredSession that trains on labels; `body` is given a function of one label, and the session."""
    with tf.Graph().as_default():
        label = tf1.placeholder(tf.int64, [2], "label")
        logits = tf1.get_variable("w", initializer=np.zeros((2, 3), np.float32))
        loss = tf.reduce_mean(tf1.nn.sparse_softmax_cross_entropy_with_logits(labels=label, logits=logits))
        count = tf1.train.get_or_create_global_step()
        ends = tf1.data.make_one_shot_iterator(tf1.data.Dataset.range(3)).get_next()
        train_op = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, count)
        hooks = [*others, nanwatch.NanWatchHook(logdir, loss=loss)]
        session = tf1.train.MonitoredSession(hooks=hooks)

        def step(value: int, more: Any = ()) -> None:
            session.run([train_op, *more], {label: [0, value]})

        body(step, session, ends)
        if finish:
            session.close()


def report_of(logdir: Path) -> list[str]:
    return [finding["rule"] for finding in examine(only_run(logdir)).entry["findings"]]


def test_an_error_of_a_monitored_session(tmp_path: Path) -> None:
    def body(step: Any, session: Any, _: Any) -> None:
        with session:
            step(1)
            step(2)
            step(7)

    with pytest.raises(tf.errors.InvalidArgumentError):
        monitored(tmp_path, body, finish=False)
    ((number, text),) = raised(tmp_path)
    assert number == 2
    assert text.startswith(f"InvalidArgumentError: {LABELS} Label values: 0 7")
    assert only_run(tmp_path).steps == 2
    assert report_of(tmp_path) == ["label_invalid"]


def test_an_error_that_a_monitored_training_survived(tmp_path: Path) -> None:
    def body(step: Any, _session: Any, _ends: Any) -> None:
        step(1)
        with pytest.raises(tf.errors.InvalidArgumentError):
            step(7)
        step(1)

    monitored(tmp_path, body)
    assert [number for number, _ in raised(tmp_path)] == [1]
    assert report_of(tmp_path) == []


@pytest.mark.parametrize("caught", [False, True])
def test_the_end_of_the_data_of_a_monitored_session_is_no_error(caught: bool, tmp_path: Path) -> None:
    def body(step: Any, session: Any, ends: Any) -> None:
        with contextlib.suppress(tf.errors.OutOfRangeError), contextlib.nullcontext() if caught else session:
            while not session.should_stop():
                step(1, [ends])

    monitored(tmp_path, body, finish=caught)
    run = only_run(tmp_path)
    assert (run.steps, raised(tmp_path), run.ended) == (3, [], True)


def test_an_interrupt_of_a_monitored_session_is_no_error(tmp_path: Path) -> None:
    class Interrupting(tf1.train.SessionRunHook):  # type: ignore[misc]
        def after_create_session(self, session: Any, coord: Any) -> None:
            self.session, self.run = session, session.run

            def run(fetches: Any, feed_dict: Any = None, **more: Any) -> Any:
                if feed_dict and [0, 2] in feed_dict.values():
                    raise KeyboardInterrupt
                return self.run(fetches, feed_dict, **more)

            session.run = run

    def body(step: Any, session: Any, _: Any) -> None:
        with session:
            step(1)
            step(2)

    with pytest.raises(KeyboardInterrupt):
        monitored(tmp_path, body, [Interrupting()], finish=False)
    gc.collect()
    assert raised(tmp_path) == []


def test_another_hook_that_ends_the_training(tmp_path: Path) -> None:
    class Raising(tf1.train.SessionRunHook):  # type: ignore[misc]
        count = 0

        def after_run(self, run_context: Any, run_values: Any) -> None:
            self.count += 1
            if self.count == 3:
                raise RuntimeError("enough")

    hook = Raising()

    def body(step: Any, session: Any, _: Any) -> None:
        with session:
            for _ in range(4):
                step(1)

    with pytest.raises(RuntimeError, match="enough"):
        monitored(tmp_path, body, [hook], finish=False)
    del hook
    gc.collect()
    for recorder in [one for one in gc.get_objects() if isinstance(one, GraphRecorder)]:
        recorder.close()  # as the end of the process does
    ((number, text),) = raised(tmp_path)
    assert (number, text) == (2, UNKNOWN)
    assert report_of(tmp_path) == ["ended_by_error"]


# ---------------------------------------------------------------- beside the steps of a fit

PLACES = ["on_train_batch_begin", "on_train_batch_end", "on_epoch_end", "on_train_end", "on_test_batch_end"]


def raising(where: str, error: BaseException) -> Any:
    """A callback that raises when a method of its own is called the second time, and at once at the end of a fit."""
    calls = iter([] if where == "on_train_end" else [None])

    def method(self: Any, *_: Any, **__: Any) -> None:
        if next(calls, error) is not None:
            raise error

    return type("Raising", (keras.callbacks.Callback,), {where: method})()


def fitted(logdir: Path, other: Any, last: bool, model: Any = None, y: Any = 0) -> Any:
    """Two epochs of five steps, each with a validation; the watcher is the last of two callbacks, or the first."""
    model = model or classifier()
    watcher = nanwatch.NanWatch(logdir)
    x, labels = np.ones((40, 4), np.float32), np.zeros(40, np.int64)
    validation = (x[:16], labels[:16] + y)
    callbacks = [other, watcher] if last else [watcher, other]
    model.fit(x, labels, batch_size=8, epochs=2, verbose=0, validation_data=validation, callbacks=callbacks)
    return model


@pytest.mark.parametrize("last", [False, True], ids=["watcher first", "watcher last"])
@pytest.mark.parametrize("where", PLACES)
def test_another_callback_that_ends_a_fit(where: str, last: bool, tmp_path: Path) -> None:
    error, model = ValueError("enough"), classifier()
    with pytest.raises(ValueError, match="enough") as caught:
        fitted(tmp_path, raising(where, error), last, model)
    assert caught.value is error
    assert error.__cause__ is None
    ((step, text),) = raised(tmp_path)
    assert step == only_run(tmp_path).steps == {"on_train_batch_begin": 1, "on_train_batch_end": 2}.get(where, step)
    assert text.startswith("ValueError: enough (test_failure.py, line ")
    assert report_of(tmp_path) == ["ended_by_error"]
    left = {"train_step", "make_train_function", "evaluate"} & set(model.__dict__)
    assert left == set()


def test_a_validation_that_ends_a_fit(tmp_path: Path) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        fitted(tmp_path, keras.callbacks.Callback(), last=False, y=7)
    ((step, text),) = raised(tmp_path)
    assert step == 5
    assert text.startswith(f"InvalidArgumentError: {LABELS}")
    assert report_of(tmp_path) == ["label_invalid"]


def test_an_evaluation_that_a_callback_survives(tmp_path: Path) -> None:
    class Evaluating(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            with pytest.raises(tf.errors.InvalidArgumentError):
                self.model.evaluate(np.ones((2, 4), np.float32), np.array([0, 7]), verbose=0)

    fitted(tmp_path, Evaluating(), last=False)
    assert (only_run(tmp_path).steps, raised(tmp_path), report_of(tmp_path)) == (10, [], [])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)], ids=["interrupt", "exit"])
def test_a_callback_that_ends_a_fit_without_an_error(error: BaseException, tmp_path: Path) -> None:
    with pytest.raises(type(error)):
        fitted(tmp_path, raising("on_train_batch_end", error), last=True)
    assert raised(tmp_path) == []


def test_a_fit_after_one_that_a_callback_ended(tmp_path: Path) -> None:
    model = classifier()
    callbacks = keras.callbacks.CallbackList(
        [raising("on_epoch_end", ValueError("enough")), nanwatch.NanWatch(tmp_path)], model=model
    )
    x, y = np.ones((40, 4), np.float32), np.zeros(40, np.int64)
    with pytest.raises(ValueError, match="enough"):
        model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
    assert not {"on_epoch_end", "on_train_batch_end"} & set(vars(callbacks))
    fitted(tmp_path, keras.callbacks.Callback(), last=False, model=model)
    assert only_run(tmp_path).steps == 20
    assert report_of(tmp_path) == []
