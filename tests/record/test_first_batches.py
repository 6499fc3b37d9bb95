"""What the recorder tells of the columns of the first batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import graphs
import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray
from recorded import only_run
from sklearn.datasets import load_digits, load_wine

import tb_nanwatch as nanwatch
from tb_nanwatch.format.records import BatchPart
from tb_nanwatch.record.first_batches import Watch


def seen(*batches: Any, name: str = "x") -> BatchPart:
    """What is known of the only part after these batches."""
    watch = Watch()
    found = [watch.look(step, [(name, batch)]) for step, batch in enumerate(batches)]
    (part,) = next(f for f in reversed(found) if f is not None).parts
    return part


def table(rows: int = 32, columns: int = 8) -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=(rows, columns)).astype(np.float32)


def test_columns_over_three_batches_as_numpy_sees_them() -> None:
    whole = table(96).astype(np.float64)
    whole[:, 4] = 1.6e9 + np.arange(96)  # a time stamp: squares of it would lose the deviation
    part = seen(*(tf.constant(batch) for batch in np.split(whole, 3)))
    (column,) = part.extreme
    assert (part.rows, part.columns, part.shape, part.dtype) == (96, 8, (32, 8), "float64")
    assert part.typical == np.median(np.abs(whole).max(axis=0))
    assert (column.index, column.min, column.max) == (4, 1.6e9, 1.6e9 + 95)
    assert column.mean == pytest.approx(1.6e9 + 47.5, abs=1e-3)
    assert column.std == pytest.approx(whole[:, 4].std(), rel=1e-6)


def test_a_fourth_batch_is_not_looked_at() -> None:
    watch = Watch()
    for step in range(3):
        assert not watch.done
        watch.look(step, [("x", table())])
    assert watch.done


def test_constant_columns_are_told_among_others_that_change() -> None:
    batch = table()
    batch[:, 2], batch[:, 3] = 1.5, 0.0
    assert [(c.index, c.min) for c in seen(batch).constant] == [(2, 1.5), (3, 0.0)]
    assert [c.index for c in seen(batch, table()).constant] == []
    assert seen(batch[:31]).constant_count == 0  # too few rows to know


@pytest.mark.parametrize("many", [
    np.eye(32, 40, dtype=np.float32),  # one of many
    np.where(np.arange(40) < 25, 1.0, 0.0) * np.ones((32, 1)),  # all the same
    np.where(np.arange(40) < np.arange(32)[:, None], table(32, 40), 0),  # padded at the end
    np.full((32, 12), 101) + np.eye(32, 12, dtype=np.int64)[:, ::-1] * (np.arange(12) > 0),  # tokens
])  # fmt: skip
def test_what_is_ordinary_is_not_told(many: NDArray[Any]) -> None:
    assert (seen(many).extreme_count, seen(many).constant_count) == (0, 0)


def test_digits_have_borders() -> None:
    pixels = load_digits().data.astype(np.float32)
    part = seen(*np.split(pixels[:96], 3))
    assert (part.extreme, part.constant) == ((), ())


def test_a_value_that_is_not_finite_hides_none_of_the_others() -> None:
    batch = table()
    batch[:, 1] *= 1e5
    batch[3, 1], batch[4, 0], batch[:, 5] = np.inf, np.nan, np.nan
    (column,) = seen(batch).extreme
    assert column.index == 1
    assert column.max == pytest.approx(float(batch[np.isfinite(batch[:, 1]), 1].max()))


@pytest.mark.parametrize("value", [
    np.float32(3.0), np.zeros(4, "datetime64[s]"), np.array(["a"]), tf.constant("text"), tf.sparse.eye(3),
    tf.ragged.constant([[1.0], []]), np.zeros((0, 5)), np.zeros((4, 5000)), tf.zeros([2, 3, 4, 5, 6]),
    tf.constant([[True]]), tf.cast([[1.0, 2.0]], tf.bfloat16),
])  # fmt: skip
def test_any_part_of_a_batch_is_taken(value: Any) -> None:
    assert (seen(value).extreme, seen(value).constant) == ((), ())


def test_channels_of_pictures() -> None:
    pictures = np.random.default_rng(0).random((8, 16, 16, 4))
    pictures[..., 3] *= 65_535
    part = seen(pictures)
    assert (part.rows, part.columns, [c.index for c in part.extreme]) == (8 * 16 * 16, 4, [3])


def test_a_large_batch_is_looked_at_in_part() -> None:
    part = seen(np.ones((4096, 256)))
    assert part.rows == 2048
    assert part.shape == (4096, 256)


# ---------------------------------------------------------------- real runs


def wine() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    x, y = load_wine(return_X_y=True)
    return x[:96].astype(np.float32), y[:96]


def test_fit(tmp_path: Path) -> None:
    x, y = wine()
    model = keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dense(3)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    callback = nanwatch.NanWatch(tmp_path)
    model.fit(x, y, batch_size=32, epochs=2, shuffle=False, verbose=0, callbacks=[callback])
    callback.close()
    found = only_run(tmp_path).batch
    assert found is not None
    assert not found.mapping
    inputs, labels = found.parts
    assert [(c.index, c.max) for c in inputs.extreme] == [(12, float(x[:, 12].max()))]
    assert (labels.name, labels.shape, labels.extreme) == ("y", (32,), ())


def test_watched_step(tmp_path: Path) -> None:
    x, y = wine()
    w = tf.Variable(tf.zeros([13, 3]))

    @tf.function
    def train(batch: Any, weight: Any = None) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch["y"], batch["x"] @ w))
        w.assign_sub(1e-9 * tape.gradient(loss, w))
        return loss

    with nanwatch.watch(train, tmp_path, variables=[w]) as step:
        for part in range(3):
            rows = slice(32 * part, 32 * part + 32)
            step({"x": tf.constant(x[rows]), "y": tf.constant(y[rows])})
    found = only_run(tmp_path).batch
    assert found is not None
    assert found.mapping
    assert [(p.name, p.dtype) for p in found.parts] == [("x", "float32"), ("y", "int64")]
    assert [c.index for c in found.parts[0].extreme] == [12]


def test_graph(tmp_path: Path) -> None:
    x, y = wine()
    program = graphs.regression()
    with tf.compat.v1.Session(graph=program.graph) as session:
        with program.graph.as_default():
            session.run(tf.compat.v1.global_variables_initializer())
        nanwatch.watch_session(session, tmp_path, loss=program.loss)
        for part in range(3):
            rows = slice(32 * part, 32 * part + 32)
            session.run(program.train_op, program.feed(x[rows, 9:], y[rows, None]))
    found = only_run(tmp_path).batch
    assert found is not None
    fed = {part.name: part for part in found.parts}
    assert [c.index for c in fed["x"].extreme] == [3]
    assert (fed["y"].dtype, fed["y"].rows) == ("float32", 0)  # one column is compared with none
