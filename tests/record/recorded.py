"""What a test finds in a file, and what numpy says should be there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tb_nanwatch.format import magnitude
from tb_nanwatch.store.catalog import Catalog
from tb_nanwatch.store.run import Run

#: Relative error of a stored norm: the encoding's, and that of float32 sums.
ERROR = magnitude.RELATIVE_ERROR + 2e-4


def only_run(logdir: Path) -> Run:
    """The one run of a logdir, without damage."""
    catalog = Catalog(logdir)
    catalog.refresh()
    (run,) = catalog.runs().values()
    assert run.damage == ()
    return run


def values(run: Run, tag: str, stat: str = "norm") -> dict[int, float]:
    """Step to value of a series."""
    series = run.series(tag, stat)
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def incidents(run: Run) -> list[tuple[int, str, str]]:
    """(first step, phase, tensor) of each incident."""
    return [(i.first_step, i.origin.phase, i.origin.tensor) for i in run.incidents]


def norm(array: Any) -> float:
    """L2 norm in float64."""
    return float(np.linalg.norm(np.asarray(array).astype(np.float64)))


Step = Mapping[str, Any]  # tag to array


def sequential_by_hand(
    model: Any, batches: Iterable[tuple[Any, Any]], loss_of: Callable[[Any, Any], Any]
) -> list[Step]:
    """Train a Sequential model eagerly, layer by layer; every tensor of every step, as numpy arrays by tag."""
    steps = []
    for x, y in batches:
        step: dict[str, Any] = {"input/x": x, "input/y": y}
        before = [np.asarray(v) for v in model.weights]
        with tf.GradientTape() as tape:
            h = tf.constant(x)
            for layer in model.layers:
                h = layer(h, training=True)
                step[f"activation/{layer.name}/output"] = h
            loss = loss_of(y, h)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        step["loss/loss"] = loss
        for v, gradient in zip(model.trainable_variables, gradients, strict=True):
            step[f"gradient/{_name(model, v)}"] = gradient
        for v, old in zip(model.weights, before, strict=True):
            step[f"weight/{_name(model, v)}"] = np.asarray(v)
            if v.trainable:
                step[f"update/{_name(model, v)}"] = np.asarray(v) - old
        steps.append({tag: np.asarray(array) for tag, array in step.items()})
    return steps


def _name(model: Any, variable: Any) -> str:
    (layer,) = [layer for layer in model.layers if any(v is variable for v in layer.weights)]
    return f"{layer.name}/{variable.name}"


def check_norms(run: Run, steps: Sequence[Step], tags: Iterable[str], every: int = 1) -> None:
    """Norms of `tags` in the file are those of `steps`, at least at one of `every` steps in a row."""
    for tag in tags:
        found = values(run, tag)
        assert set(found) <= set(range(len(steps))), tag
        for first in range(len(steps) - every + 1):
            assert set(found) & set(range(first, first + every)), f"{tag} was not measured from step {first} on"
        expected = {step: norm(steps[step][tag]) for step in found}
        assert found == pytest.approx(expected, rel=ERROR, abs=1e-12), tag


def check_statistics(run: Run, steps: Sequence[Step], tags: Iterable[str], every: int) -> None:
    """Full statistics of `tags` are there at every `every`-th step, and are those of `steps`."""
    for tag in tags:
        arrays = {step: steps[step][tag].astype(np.float64) for step in range(0, len(steps), every)}
        largest = {step: float(np.abs(a).max()) for step, a in arrays.items()}
        assert values(run, tag, "max_abs") == pytest.approx(largest, rel=ERROR), tag
        means = {step: float(a.mean()) for step, a in arrays.items()}
        assert values(run, tag, "mean") == pytest.approx(means, rel=2**-8, abs=1e-5 * max(largest.values())), tag
        zeros = {step: float((a == 0).mean()) for step, a in arrays.items()}
        assert values(run, tag, "zero_share") == pytest.approx(zeros, abs=1e-4), tag


def mlp(seed: int = 3, optimizer: Any = None, dtype: str = "float32", **compiled: Any) -> Any:
    """A small compiled network with named layers."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((4,), dtype=dtype),
            layers.Dense(6, activation="relu", name="first", dtype=dtype),
            layers.Dense(5, activation="tanh", name="second", dtype=dtype),
            layers.Dense(1, name="last", dtype=dtype),
        ]
    )
    model.compile(optimizer or keras.optimizers.Adam(1e-2), "mse", **{"jit_compile": False, **compiled})
    return model


def data(samples: int = 64, bad: int | None = None) -> tuple[Any, Any]:
    """x float32[samples, 4], y float32[samples, 1]; with `bad`, that sample's x is NaN."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(samples, 4)).astype(np.float32)
    y = rng.normal(size=(samples, 1)).astype(np.float32)
    if bad is not None:
        x[bad] = np.nan
    return x, y


def batches(x: Any, y: Any, size: int = 8) -> list[tuple[Any, Any]]:
    return [(x[i : i + size], y[i : i + size]) for i in range(0, len(x), size)]


def mean_squared(y: Any, output: Any) -> Any:
    return tf.reduce_mean((output - y) ** 2)


def descending(model: Any) -> Callable[[Any, Any], Any]:
    """A training step by hand, of a compiled model, on the mean squared error."""

    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = mean_squared(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return train
