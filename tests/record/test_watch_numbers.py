"""What a watched custom step writes is what happened: eager, tf.function, XLA; models, modules and bare variables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from recorded import (
    batches,
    check_norms,
    check_statistics,
    data,
    mean_squared,
    mlp,
    norm,
    only_run,
    sequential_by_hand,
    values,
)

import tb_nanwatch as nanwatch

STEPS = 23
WEIGHTS = [f"{layer}/{name}" for layer in ("first", "second", "last") for name in ("kernel", "bias")]
STYLES: dict[str, Callable[[Any], Any]] = {
    "eager": lambda step: step,
    "function": tf.function,
    "xla": lambda step: tf.function(step, jit_compile=True),
    "signature": lambda step: tf.function(
        step, input_signature=[tf.TensorSpec([None, 4], name="x"), tf.TensorSpec([None, 1], name="y")]
    ),
}


def step_of(model: Any) -> Callable[..., Any]:
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = mean_squared(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return train_step


@pytest.mark.parametrize("style", STYLES)
def test_every_number_of_every_step(style: str, tmp_path: Path) -> None:
    x, y = data(8 * STEPS + 3)
    steps = sequential_by_hand(mlp(), batches(x, y), mean_squared)
    model = mlp()
    with nanwatch.watch(
        STYLES[style](step_of(model)), tmp_path, model=model, optimizer=model.optimizer, every=5
    ) as step:
        losses = [float(step(tf.constant(a), tf.constant(b))) for a, b in batches(x, y)]
    assert losses == pytest.approx([float(s["loss/loss"]) for s in steps], rel=1e-3)
    run = only_run(tmp_path)
    assert (run.steps, run.ended, run.header.entry_point) == (STEPS + 1, True, "watch")
    turns = 5 if style == "xla" else 1
    check_norms(run, steps, [f"weight/{name}" for name in WEIGHTS])
    check_norms(run, steps, [f"gradient/{layer}/kernel" for layer in ("first", "second", "last")], every=turns)
    read = [info.tag for kind in ("input", "activation", "gradient") for info in run.kind(kind)]
    check_norms(run, steps, read, every=turns)
    check_norms(run, steps, [f"update/{name}" for name in WEIGHTS], every=10)
    check_statistics(run, steps, [f"weight/{name}" for name in WEIGHTS], every=5)
    if style != "xla":
        assert {f"gradient/{name}" for name in WEIGHTS} | {"input/x", "input/y"} <= set(read)
        check_statistics(run, steps, read, every=5)
    if style == "eager":
        assert "activation/last/output" in read
    assert values(run, "loss/loss", "value") == pytest.approx(dict(enumerate(losses)))
    assert np.array_equal(run.series("loss/loss", "value").iterations, np.arange(1, STEPS + 2))


class Module(tf.Module):
    """A line fitted by hand: prediction = x @ w + b."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(tf.ones([4, 1]) / 3)
        self.b = tf.Variable(tf.zeros([1]))

    def train(self, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            error = nanwatch.tap("error", x @ self.w + self.b - y)
            loss = tf.reduce_mean(error**2)
        w, b = tape.gradient(loss, [self.w, self.b])
        self.w.assign_sub(0.1 * w)
        self.b.assign_sub(0.1 * b)
        return loss


def module_by_hand(x: Any, y: Any) -> list[dict[str, Any]]:
    w, b = np.ones([4, 1]) / 3, np.zeros([1])
    steps = []
    for a, c in batches(x.astype(np.float64), y.astype(np.float64)):
        error = a @ w + b - c
        gradient_w, gradient_b = 2 * a.T @ error / len(a), 2 * error.mean(0)
        step = {"input/x": a, "activation/error": error, "gradient/w": gradient_w, "gradient/b": gradient_b}
        w, b = w - 0.1 * gradient_w, b - 0.1 * gradient_b
        steps.append({**step, "weight/w": w, "weight/b": b, "loss": np.mean(error**2)})
    return steps


@pytest.mark.parametrize("style", ["eager", "function", "method", "xla"])
@pytest.mark.parametrize("given", ["model", "variables"])
def test_a_module_and_its_taps(style: str, given: str, tmp_path: Path) -> None:
    x, y = data(8 * STEPS)
    steps = module_by_hand(x, y)
    module = Module()
    if style == "method":

        class Decorated(Module):
            train = tf.function(Module.train)

        module = Decorated()
        train = module.train
    else:
        train = STYLES[style](module.train)
    watched: dict[str, Any] = {"model": module} if given == "model" else {"variables": [module.w, module.b]}
    with nanwatch.watch(train, tmp_path, every=5, **watched) as step:
        for a, c in batches(x, y):
            step(tf.constant(a), tf.constant(c))
    run = only_run(tmp_path)
    names = (
        {"b": "b", "w": "w"} if given == "model" else {"b": run.kind("weight")[1].name, "w": run.kind("weight")[0].name}
    )
    for kind in ("weight", "gradient"):
        for name, found in names.items():
            if kind == "gradient" and run.by_tag(f"gradient/{found}") is None:
                assert style == "xla"  # there only what a matrix product made is read
                continue
            recorded = values(run, f"{kind}/{found}")
            assert len(recorded) >= STEPS // 5
            expected = {n: norm(steps[n][f"{kind}/{name}"]) for n in recorded}
            assert recorded == pytest.approx(expected, rel=0.006)
    if style != "xla":
        check_norms(run, steps, ["input/x", "activation/error"])
        error = run.by_tag("activation/error")
        assert error is not None
        assert (error.layer, error.layer_class) == ("error", "tap")
    assert values(run, "loss/loss", "value") == pytest.approx({n: s["loss"] for n, s in enumerate(steps)}, rel=1e-3)
    assert set(run.series("loss/loss", "value").iterations) == {-1}


@pytest.mark.parametrize("style", ["eager", "function", "xla"])
def test_batches_of_any_structure(style: str, tmp_path: Path) -> None:
    x, y = data(8)
    model = mlp()

    def train(batch: dict[str, Any], *, scale: Any) -> dict[str, Any]:
        loss = step_of(model)(batch["features"] * scale, batch["more"][0])
        return {"loss": loss, "nothing": None, "nested": (loss, [scale])}

    with nanwatch.watch(STYLES[style](train), tmp_path, model=model) as step:
        for _ in range(3):
            batch = {"features": tf.constant(x), "more": [tf.constant(y)]}
            result = step(batch=batch, scale=tf.constant(2.0))
    assert set(result) == {"loss", "nothing", "nested"}
    assert result["nothing"] is None
    assert float(result["nested"][1][0]) == 2
    run = only_run(tmp_path)
    assert run.steps == 3
    assert [info.name for info in run.kind("input")] == ["batch/features", "batch/more/0", "scale"]
    if style != "xla":
        assert values(run, "input/batch/features")[1] == pytest.approx(norm(x), rel=0.006)


@pytest.mark.parametrize("style", ["eager", "function", "xla"])
def test_a_step_that_returns_nothing(style: str, tmp_path: Path) -> None:
    x, y = data(8)
    model = mlp()
    train = step_of(model)

    def nothing(x: Any, y: Any) -> None:
        train(x, y)

    with nanwatch.watch(STYLES[style](nothing), tmp_path, model=model) as step:
        assert step(tf.constant(x), tf.constant(y)) is None
        assert step(tf.constant(x), tf.constant(y)) is None
    assert only_run(tmp_path).steps == 2


@pytest.mark.parametrize("style", ["eager", "function", "xla"])
def test_shapes_and_ranks_that_change(style: str, tmp_path: Path) -> None:
    w = tf.Variable(tf.ones([4, 2]), name="w")

    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tensordot(x, w, 1) ** 2)
        w.assign_sub(1e-6 * tape.gradient(loss, w))
        return loss

    shapes = [(2, 4), (3, 4), (2, 3, 4), (2, 4), (0, 4), (1, 2, 3, 4)]
    with nanwatch.watch(STYLES[style](train), tmp_path, variables=[w], every=1) as step:
        for shape in shapes:
            step(tf.ones(shape))
    run = only_run(tmp_path)
    assert run.notes == ()
    assert run.incidents == ()
    assert values(run, "input/x") == pytest.approx({n: np.sqrt(np.prod(s)) for n, s in enumerate(shapes)}, rel=0.006)


@pytest.mark.parametrize("style", ["eager", "function", "xla"])
def test_numpy_batches(style: str, tmp_path: Path) -> None:
    x, y = data(24, bad=10)
    model = mlp()
    with nanwatch.watch(STYLES[style](step_of(model)), tmp_path, model=model) as step:
        for a, b in batches(x, y):
            step(a, b)
    run = only_run(tmp_path)
    assert [info.tag for info in run.kind("input")] == ["input/x", "input/y"]
    assert [(i.first_step, i.origin.phase, i.origin.tensor) for i in run.incidents] == [(1, "input", "x")]


@pytest.mark.parametrize("style", ["eager", "function"])
def test_two_optimizers_and_two_losses(style: str, tmp_path: Path) -> None:
    """As in adversarial training: one step, two tapes, two models."""
    x, y = data(8)
    models = {"left": mlp(3), "right": mlp(4)}

    def train(x: Any, y: Any) -> None:
        for model in models.values():
            step_of(model)(x, y)

    optimizers = [m.optimizer for m in models.values()]
    with nanwatch.watch(STYLES[style](train), tmp_path, model=models, optimizer=optimizers) as step:
        for _ in range(4):
            step(tf.constant(x), tf.constant(y))
    run = only_run(tmp_path)
    for label, seed in (("left", 3), ("right", 4)):
        steps = sequential_by_hand(mlp(seed), [(x, y)] * 4, mean_squared)
        moved = [{f"{t.partition('/')[0]}/{label}/{t.partition('/')[2]}": a for t, a in s.items()} for s in steps]
        check_norms(run, moved, [f"{kind}/{label}/{name}" for kind in ("weight", "gradient") for name in WEIGHTS])
    assert [info.name for info in run.kind("loss")] == ["loss", "loss:1"]


def test_tap_does_nothing_outside_a_watched_step() -> None:
    tensor = tf.constant([1.0])
    assert nanwatch.tap("name", tensor) is tensor
    assert nanwatch.tap("name", "anything") == "anything"


@pytest.mark.parametrize("where", ["gradient", "weight"])
@pytest.mark.parametrize("style", ["eager", "function", "xla"])
def test_huge_finite_numbers_are_measured_and_no_incident(style: str, where: str, tmp_path: Path) -> None:
    """Squares of float32 above 1.8e19 overflow."""
    v = tf.Variable(tf.ones([4, 4]) * (1e20 if where == "weight" else 1), name="v")
    scale = tf.constant(1e-10 if where == "weight" else 1e25)

    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(x * scale, v))
        v.assign_sub(1e-30 * tape.gradient(loss, v))
        return loss

    with nanwatch.watch(STYLES[style](train), tmp_path, variables=[v]) as step:
        for _ in range(45):  # longer than any number of close looks in a row
            step(tf.ones([4, 4]))
    run = only_run(tmp_path)
    assert run.incidents == ()
    assert run.last_finite_step == 44
    expected = {"weight": (4e20, 1.6e-9), "gradient": (4.0, 1.6e26)}[where]
    weight, gradient = values(run, "weight/v"), values(run, "gradient/v")
    assert weight == pytest.approx(dict.fromkeys(range(45), expected[0]), rel=0.006)
    assert len(gradient) >= (5 if style == "xla" else 45)
    assert list(gradient.values()) == pytest.approx([expected[1]] * len(gradient), rel=0.006)


@pytest.mark.parametrize("style", ["eager", "function", "xla"])
def test_tiny_numbers_are_not_called_zero(style: str, tmp_path: Path) -> None:
    """Squares of float32 below 1e-19 underflow; such norms are known at full steps."""
    v = tf.Variable(tf.ones([4, 4]), name="v")

    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(x, v))
        v.assign_sub(tape.gradient(loss, v))
        return loss

    with nanwatch.watch(STYLES[style](train), tmp_path, variables=[v], every=5) as step:
        for _ in range(21):
            step(tf.ones([4, 4]) * 1e-25)
    found = values(only_run(tmp_path), "gradient/v")
    assert len(found) >= 4
    assert list(found.values()) == pytest.approx([1.6e-24] * len(found), rel=0.006)


@pytest.mark.parametrize("style", ["eager", "function", "xla"])
def test_float64_losses_beyond_float32_stay_finite(style: str, tmp_path: Path) -> None:
    v = tf.Variable(tf.ones([2, 2], tf.float64), name="v")

    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(x, v)) * 1e60
        v.assign_sub(1e-100 * tape.gradient(loss, v))
        return loss

    with nanwatch.watch(STYLES[style](train), tmp_path, variables=[v]) as step:
        for _ in range(3):
            step(tf.ones([2, 2], tf.float64))
    run = only_run(tmp_path)
    assert run.incidents == ()
    assert run.last_finite_step == 2
    assert values(run, "loss/loss", "value")[2] == pytest.approx(3.4028e38, rel=1e-4)
