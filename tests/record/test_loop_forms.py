"""Custom loops of every form, trained for real: traced anew by shape, nested, repeated inside a graph, of second order,
with several optimizers, accumulating by hand, and those that skip bad updates themselves."""

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

watch = functools.partial(nanwatch.watch, trial_seconds=0)
STYLES: dict[str, Callable[[Any], Any]] = {
    "eager": lambda step: step,
    "function": tf.function,
    "xla": lambda step: tf.function(step, jit_compile=True),
}


def line(seed: int = 0) -> Any:
    return tf.Variable(np.random.default_rng(seed).normal(size=(4, 1)).astype("float32"), name="w")


def line_by_hand(w: Any, x: Any, y: Any) -> tuple[Any, float]:
    """Gradient and loss of a line in float64."""
    error = x.astype(np.float64) @ w - y
    return 2 * x.T @ error / len(x), float(np.mean(error**2))


def tensors(pairs: Any) -> Any:
    return [tuple(map(tf.constant, pair)) for pair in pairs]


# ---------------------------------------------------------------- how a step is traced


@pytest.mark.parametrize("style", ["function", "xla"])
def test_a_step_traced_anew_for_every_shape(style: str, tmp_path: Path) -> None:
    """Each trace writes its own row; the numbers are one series."""
    w, weights = line(), line().numpy().astype(np.float64)
    x, y = data(60)
    sizes = [8, 5, 8, 3, 5, 8, 16, 3]

    def train(a: Any, b: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((a @ w - b) ** 2)
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss

    steps, start = [], 0
    with watch(STYLES[style](train), tmp_path, variables=[w]) as step:
        for size in sizes:
            a, b = x[start : start + size], y[start : start + size]
            start += size
            step(tf.constant(a), tf.constant(b))
            gradient, loss = line_by_hand(weights, a, b)
            weights = weights - 0.1 * gradient
            steps.append({"gradient/w": gradient, "weight/w": weights, "loss": loss})
    run = only_run(tmp_path)
    assert run.steps == len(sizes)
    check_norms(run, steps, ["weight/w"])
    assert values(run, "loss/loss", "value") == pytest.approx({n: s["loss"] for n, s in enumerate(steps)}, rel=1e-4)
    recorded = values(run, "gradient/w")
    assert recorded == pytest.approx({n: norm(steps[n]["gradient/w"]) for n in recorded}, rel=6e-3)
    assert style == "xla" or len(recorded) == len(sizes)


@pytest.mark.parametrize("style", ["function", "xla"])
def test_functions_inside_functions(style: str, tmp_path: Path) -> None:
    """Layers and gradients are seen in the inner tf.function, taps in the innermost."""
    model = mlp()

    @tf.function
    def squared(error: Any) -> Any:
        return nanwatch.tap("squared", error**2)

    @tf.function
    def forward_and_back(a: Any, b: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(squared(model(a, training=True) - b))
        return loss, tape.gradient(loss, model.trainable_variables)

    def train(a: Any, b: Any) -> Any:
        loss, gradients = forward_and_back(a, b)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    twin, by_hand = mlp(), []
    x, y = data(40, bad=27)
    for a, b in batches(x, y):
        with tf.GradientTape() as tape:
            error = (twin(a, training=True) - b) ** 2
            loss = tf.reduce_mean(error)
        gradients = tape.gradient(loss, twin.trainable_variables)
        twin.optimizer.apply(gradients, twin.trainable_variables)
        found = {
            "activation/squared": error,
            "gradient/last/kernel": gradients[4],
            "weight/first/kernel": twin.weights[0],
        }
        by_hand.append({tag: np.asarray(t) for tag, t in found.items()})
    with watch(STYLES[style](train), tmp_path, model=model, optimizer=model.optimizer, every=2) as step:
        losses = [float(step(*pair)) for pair in tensors(batches(x, y))]
    run = only_run(tmp_path)
    assert incidents(run) == [(3, "input", "x")] or incidents(run)[0][:2] == (3, "input")
    assert np.isfinite(losses[:3]).all()
    for tag in by_hand[0]:
        if run.by_tag(tag) is None:
            assert style == "xla", tag  # it fuses away what no contraction makes, and what crosses functions
            assert not tag.startswith("weight/")
            continue
        recorded = {n: v for n, v in values(run, tag).items() if n < 3}
        assert recorded == pytest.approx({n: norm(by_hand[n][tag]) for n in recorded}, rel=6e-3)
        assert recorded


@pytest.mark.parametrize("style", STYLES)
def test_steps_repeated_inside_a_graph(style: str, tmp_path: Path) -> None:
    """A tf.while_loop around steps: one call is one step of the recorder. Weights are read behind the loop, what is
    inside it by the replay."""
    w, weights = line(), line().numpy().astype(np.float64)

    def train(a: Any, b: Any) -> Any:
        def body(number: Any, total: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((a @ w - b) ** 2)
            w.assign_sub(0.1 * tape.gradient(loss, w))
            return number + 1, total + loss

        return tf.while_loop(lambda number, _: number < 4, body, (tf.constant(0), tf.constant(0.0)))[1]

    x, y = data(40, bad=27)
    expected = []
    with watch(STYLES[style](train), tmp_path, variables=[w]) as step:
        for a, b in batches(x, y):
            step(tf.constant(a), tf.constant(b))
            for _ in range(4):
                weights = weights - 0.1 * line_by_hand(weights, a, b)[0]
            expected.append(norm(weights))
    run = only_run(tmp_path)
    assert run.steps == 5
    recorded = values(run, "weight/w")
    assert [recorded[n] for n in range(3)] == pytest.approx(expected[:3], rel=ERROR)
    assert [(i.first_step, i.origin.phase) for i in run.incidents] == [(3, "input")]


def test_autograph_loops_and_branches_around_layers(tmp_path: Path) -> None:
    model = mlp()

    @tf.function
    def train(a: Any, b: Any) -> Any:
        total = tf.constant(0.0)
        for number in tf.range(2):
            with tf.GradientTape() as tape:
                loss = mean_squared(b, model(a, training=True))
            gradients = tape.gradient(loss, model.trainable_variables)
            if number >= 0:
                model.optimizer.apply(gradients, model.trainable_variables)
            total += loss
        return total

    model.optimizer.build(model.trainable_variables)
    x, y = data(40, bad=27)
    with watch(train, tmp_path, model=model, optimizer=model.optimizer) as step:
        for pair in tensors(batches(x, y)):
            step(*pair)
    run = only_run(tmp_path)
    assert run.series("weight/first/kernel").iterations.tolist() == [2, 4, 6, 8, 10]
    assert values(run, "weight/first/kernel").keys() == {0, 1, 2, 3, 4}
    assert incidents(run)[0][:2] == (3, "input")


# ---------------------------------------------------------------- how gradients are made and used


@pytest.mark.parametrize("style", STYLES)
def test_accumulation_by_hand(style: str, tmp_path: Path) -> None:
    """Three batches into a sum of gradients, then an update: every batch is a step, with its own gradient."""
    w, total = line(), tf.Variable(tf.zeros((4, 1)), name="total")
    count = tf.Variable(0, dtype=tf.int64)

    def train(a: Any, b: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((a @ w - b) ** 2)
        total.assign_add(tape.gradient(loss, w))
        count.assign_add(1)
        update = tf.cast(tf.equal(count % 3, 0), tf.float32)
        w.assign_sub(update * 0.1 * total / 3)
        total.assign(total * (1 - update))
        return loss

    weights, collected, steps = line().numpy().astype(np.float64), np.zeros((4, 1)), []
    x, y = data(72)
    with watch(STYLES[style](train), tmp_path, variables=[w, total], every=1) as step:
        for number, (a, b) in enumerate(batches(x, y)):
            step(tf.constant(a), tf.constant(b))
            gradient = line_by_hand(weights, a, b)[0]
            collected = collected + gradient
            if number % 3 == 2:
                weights, collected = weights - 0.1 * collected / 3, np.zeros((4, 1))
            steps.append({"gradient/w": gradient, "weight/w": weights, "weight/total": collected})
    run = only_run(tmp_path)
    check_norms(run, steps, steps[0])
    moved = values(run, "update/w")
    assert [n for n in moved if moved[n] > 0] == [2, 5, 8]


@pytest.mark.parametrize("style", STYLES)
def test_a_loop_that_skips_bad_updates_itself(style: str, tmp_path: Path) -> None:
    """What was bad is told, the weights stay finite, and the incident is over when ten steps were fine."""
    w = line()

    def train(a: Any, b: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((a @ w - b) ** 2)
        gradient = tape.gradient(loss, w)
        fine = tf.reduce_all(tf.math.is_finite(gradient))
        w.assign_sub(tf.where(fine, 0.1 * gradient, tf.zeros_like(gradient)))
        return loss

    x, y = data(160, bad=27)
    with watch(STYLES[style](train), tmp_path, variables=[w]) as step:
        for pair in tensors(batches(x, y)):
            step(*pair)
    run = only_run(tmp_path)
    assert np.isfinite(w.numpy()).all()
    (incident,) = run.incidents
    assert (incident.first_step, incident.last_step, incident.recovered) == (3, 3, True)
    assert incident.origin.phase == "input"
    assert np.isfinite(list(values(run, "weight/w").values())).all()


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("second", ["jacobian", "nested_tapes", "batch_jacobian"])
def test_second_order(second: str, style: str, tmp_path: Path) -> None:
    """Newton's method and gradient penalties: outer gradients are recorded, and nothing of the inner ones disturbs."""
    w = tf.Variable([[0.5], [-0.25], [1.0], [2.0]], name="w")

    def loss_of(a: Any) -> Any:
        return tf.reduce_mean((a @ w) ** 4)

    def train(a: Any) -> Any:
        with tf.GradientTape() as outer:
            if second == "batch_jacobian":
                with tf.GradientTape() as inner:
                    inner.watch(a)
                    cubes = (a @ w) ** 3
                slope = inner.batch_jacobian(cubes, a)
                loss = tf.reduce_mean(slope**2)
            else:
                with tf.GradientTape() as inner:
                    plain = loss_of(a)
                inside = inner.gradient(plain, w)
                loss = plain if second == "jacobian" else plain + tf.reduce_sum(inside**2)
        if second == "jacobian":
            gradient = inside
            curvature = tf.reshape(outer.jacobian(inside, w), [4, 4])
            w.assign_sub(tf.linalg.solve(curvature + tf.eye(4), gradient))
        else:
            gradient = outer.gradient(loss, w)
            w.assign_sub(1e-4 * gradient)
        return loss

    x, _ = data(40)
    if second == "jacobian":  # the outer tape must see the inner gradient being made

        def train(a: Any) -> Any:
            with tf.GradientTape() as outer:
                with tf.GradientTape() as inner:
                    loss = loss_of(a)
                gradient = inner.gradient(loss, w)
            curvature = tf.reshape(outer.jacobian(gradient, w), [4, 4])
            w.assign_sub(tf.linalg.solve(curvature + tf.eye(4), gradient))
            return loss

    def by_hand(w: Any, a: Any) -> tuple[Any, Any, float]:
        """New weights, the gradient that is applied or solved for, the loss."""
        z, n = a @ w, len(a)
        gradient = 4 * a.T @ z**3 / n
        hessian = 12 * a.T @ (a * z**2) / n
        if second == "jacobian":
            return w - np.linalg.solve(hessian + np.eye(4), gradient), gradient, float(np.mean(z**4))
        if second == "nested_tapes":
            outer = gradient + 2 * hessian @ gradient
            return w - 1e-4 * outer, outer, float(np.mean(z**4) + np.sum(gradient**2))
        slope = 3 * z**2 * w.T  # [n, 4]
        outer = (a.T @ (36 * z**3 * np.sum(w**2)) + 18 * np.sum(z**4) * w) / (n * 4)
        return w - 1e-4 * outer, outer, float(np.mean(slope**2))

    weights, steps = w.numpy().astype(np.float64), []
    with watch(STYLES[style](train), tmp_path, variables=[w], every=1) as step:
        for a in np.split(x, 5):
            step(tf.constant(a))
            weights, gradient, loss = by_hand(weights, a.astype(np.float64))
            steps.append({"weight/w": weights, "gradient/w": gradient, "loss": loss})
    run = only_run(tmp_path)
    recorded = values(run, "weight/w")
    assert recorded == pytest.approx({n: norm(s["weight/w"]) for n, s in enumerate(steps)}, rel=6e-3)
    recorded = values(run, "gradient/w")
    assert recorded == pytest.approx({n: norm(steps[n]["gradient/w"]) for n in recorded}, rel=1e-2)
    assert recorded or style == "xla"  # which makes sums as it likes
    losses = values(run, run.kind("loss")[-1].tag, "value")
    assert losses == pytest.approx({n: s["loss"] for n, s in enumerate(steps)}, rel=1e-3)


@pytest.mark.parametrize("style", STYLES)
def test_a_gradient_penalty_of_norms_at_zero(style: str, tmp_path: Path) -> None:
    """WGAN-GP: the root of a sum of squares that is zero gives a NaN in the second backward pass alone."""

    def network(name: str, out: int) -> Any:
        return keras.Sequential(
            [
                keras.Input((2,)),
                keras.layers.Dense(8, activation="tanh", name="in"),
                keras.layers.Dense(out, name="out"),
            ],
            name=name,
        )

    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    models = {"critic": network("critic", 1), "generator": network("generator", 2)}
    critic, generator = models.values()
    optimizers = {name: keras.optimizers.Adam(1e-2) for name in models}
    for name, model in models.items():
        optimizers[name].build(model.trainable_variables)

    def train(real: Any, noise: Any, gate: Any) -> Any:
        with tf.GradientTape() as tape:
            fake = generator(noise, training=True)
            between = 0.5 * real + 0.5 * fake
            with tf.GradientTape() as inner:
                inner.watch(between)
                score = critic(between, training=True) * gate
            slope = inner.gradient(score, between)
            penalty = tf.reduce_mean((tf.sqrt(tf.reduce_sum(slope**2, 1)) - 1) ** 2)
            loss = tf.reduce_mean(critic(fake)) - tf.reduce_mean(critic(real)) + 10 * penalty
        gradients = tape.gradient(loss, critic.trainable_variables)
        optimizers["critic"].apply(gradients, critic.trainable_variables)
        with tf.GradientTape() as tape:
            g_loss = -tf.reduce_mean(critic(generator(noise, training=True)))
        gradients = tape.gradient(g_loss, generator.trainable_variables)
        optimizers["generator"].apply(gradients, generator.trainable_variables)
        return loss, g_loss

    rng = np.random.default_rng(1)
    with watch(STYLES[style](train), tmp_path, model=models, optimizer=optimizers) as step:
        for number in range(8):
            gate = np.float32(0.0 if number == 5 else 1.0)  # a critic that is flat
            losses = step(*(tf.constant(rng.normal(size=(8, 2)).astype("float32")) for _ in "ab"), tf.constant(gate))
            if number < 5:
                assert np.isfinite(losses).all()
    run = only_run(tmp_path)
    first = run.incidents[0]
    assert (first.first_step, first.origin.phase) == (5, "backward")
    assert first.origin.precision == "op"
    assert first.origin.op_type in ("SqrtGrad", "Sqrt")
    assert first.origin.source is not None
    assert "tf.sqrt" in first.origin.source.code
    rates = {i.name for i in run.kind("scalar") if "rate" in i.name}
    assert rates == {"learning_rate", "learning_rate/generator"}


# ---------------------------------------------------------------- modules


class Momentum(tf.Module):
    """An optimizer of one's own."""

    def __init__(self, variables: Any) -> None:
        super().__init__(name="momentum")
        self.slots = [tf.Variable(tf.zeros_like(v), trainable=False, name="slot") for v in variables]

    def apply(self, gradients: Any, variables: Any) -> None:
        for slot, gradient, variable in zip(self.slots, gradients, variables, strict=True):
            slot.assign(0.9 * slot + gradient)
            variable.assign_sub(0.1 * slot)


class Line(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = line()


@pytest.mark.parametrize("style", STYLES)
def test_a_module_with_an_optimizer_of_its_own(style: str, tmp_path: Path) -> None:
    module = Line()
    optimizer = Momentum([module.w])

    def train(a: Any, b: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((a @ module.w - b) ** 2)
        optimizer.apply(tape.gradient(loss, [module.w]), [module.w])
        return loss

    weights, slot, steps = line().numpy().astype(np.float64), np.zeros((4, 1)), []
    x, y = data(96, bad=90)
    with watch(STYLES[style](train), tmp_path, model=module, optimizer=optimizer) as step:
        for a, b in batches(x, y):
            step(tf.constant(a), tf.constant(b))
            slot = 0.9 * slot + line_by_hand(weights, a, b)[0]
            weights = weights - 0.1 * slot
            steps.append({"weight/w": weights})
    run = only_run(tmp_path)
    recorded = {n: v for n, v in values(run, "weight/w").items() if n < 11}
    assert recorded == pytest.approx({n: norm(steps[n]["weight/w"]) for n in range(11)}, rel=6e-3)
    assert incidents(run)[0][:2] == (11, "input")


class Centred(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(tf.ones([4]))

    def __call__(self, x: Any) -> Any:
        return self.w * x / tf.reduce_max(tf.abs(x), 1, keepdims=True)


class Stack(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rounds = [Centred(), Centred()]

    def __call__(self, x: Any) -> Any:
        for module in self.rounds:
            x = module(x)
        return x


@pytest.mark.parametrize("given", ["model", "variables"])
@pytest.mark.parametrize("style", STYLES)
def test_the_op_of_a_module_in_a_module(style: str, given: str, tmp_path: Path) -> None:
    module = Stack()
    watched = {"model": module} if given == "model" else {"variables": module.trainable_variables}

    def train(a: Any, b: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.reduce_sum(module(a), 1, keepdims=True) - b) ** 2)
        for variable, gradient in zip(
            module.trainable_variables, tape.gradient(loss, module.trainable_variables), strict=True
        ):
            variable.assign_sub(0.01 * gradient)
        return loss

    x, y = data()
    x[8 * 3 + 5] = 0
    with watch(STYLES[style](train), tmp_path, **watched) as step:
        for a, b in batches(x, y):
            step(tf.constant(a), tf.constant(b))
    incident = only_run(tmp_path).incidents[0]
    origin = incident.origin
    assert (incident.first_step, origin.phase, origin.op_type, origin.samples) == (3, "forward", "RealDiv", (5,))
    assert origin.layer == ("rounds/0" if given == "model" else "centred")  # its own name where it is a stranger
    assert origin.layer_class == "Centred"
