"""An error that ends a step is noted with its own words and line; the end of the data, and an interrupt, are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from recorded import only_run

import tb_nanwatch as nanwatch
from tb_nanwatch.record import failure

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
