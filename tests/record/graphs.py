"""TF1 graphs that the tests train, each made anew and complete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
BATCH = 8


@dataclass
class Program:
    """A graph, what to fetch for one step, and what to feed for it."""

    graph: Any
    loss: Any
    grads_and_vars: Any
    train_op: Any
    x: Any
    y: Any

    def feed(self, x: Any, y: Any) -> dict[Any, Any]:
        return {self.x: x, self.y: y}


def regression(resource: bool = True, optimizer: Any = None, step: bool = True) -> Program:
    """tanh(x w + b) w + b against y, by plain gradient descent of 0.1 unless told otherwise."""
    graph = tf.Graph()
    with graph.as_default():
        x, y = tf1.placeholder(tf.float32, [None, 4], "x"), tf1.placeholder(tf.float32, [None, 1], "y")
        rng = np.random.default_rng(7)
        with tf1.variable_scope("", use_resource=resource):
            w1 = variable("hidden/w", rng.normal(size=(4, 5)))
            b1 = variable("hidden/b", np.zeros(5))
            w2 = variable("out/w", rng.normal(size=(5, 1)))
            b2 = variable("out/b", np.zeros(1))
            hidden = tf.tanh(tf.matmul(x, w1) + b1)
            output = tf.matmul(hidden, w2) + b2
            loss = tf.reduce_mean(tf.square(output - y))
            optimizer = tf1.train.GradientDescentOptimizer(0.1) if optimizer is None else optimizer()
            pairs = optimizer.compute_gradients(loss)
            train = optimizer.apply_gradients(pairs, tf1.train.get_or_create_global_step() if step else None)
    return Program(graph, loss, pairs, train, x, y)


def variable(name: str, value: Any) -> Any:
    return tf1.get_variable(name, initializer=np.asarray(value, np.float32))


def regression_by_hand(data: list[tuple[Any, Any]]) -> list[Mapping[str, Any]]:
    """Every tensor of `regression` in numpy, by tag."""
    rng = np.random.default_rng(7)
    w1, b1, w2, b2 = rng.normal(size=(4, 5)), np.zeros(5), rng.normal(size=(5, 1)), np.zeros(1)
    steps = []
    for x, y in data:
        hidden = np.tanh(x @ w1 + b1)
        output = hidden @ w2 + b2
        back = 2 * (output - y) / len(x)
        inside = (back @ w2.T) * (1 - hidden**2)
        gradients = {
            "hidden/w": x.T @ inside,
            "hidden/b": inside.sum(0),
            "out/w": hidden.T @ back,
            "out/b": back.sum(0),
        }
        w1, b1 = w1 - 0.1 * gradients["hidden/w"], b1 - 0.1 * gradients["hidden/b"]
        w2, b2 = w2 - 0.1 * gradients["out/w"], b2 - 0.1 * gradients["out/b"]
        weights = {"hidden/w": w1, "hidden/b": b1, "out/w": w2, "out/b": b2}
        steps.append(
            {
                "input/x": x,
                "input/y": y,
                "activation/hidden/output": hidden,
                "activation/out/output": output,
                "loss/loss": np.mean((output - y) ** 2),
                **{f"gradient/{name}": g for name, g in gradients.items()},
                **{f"weight/{name}": w for name, w in weights.items()},
                **{f"update/{name}": -0.1 * g for name, g in gradients.items()},
            }
        )
    return steps


def convolutional(resource: bool = True) -> Program:
    """Fused kernels, dropout seeded by its place, Adam, clipped gradients, moving averages."""
    graph = tf.Graph()
    with graph.as_default():
        tf1.set_random_seed(5)
        x, y = tf1.placeholder(tf.float32, [None, 4], "x"), tf1.placeholder(tf.float32, [None, 1], "y")
        with tf1.variable_scope("", use_resource=resource):
            image = tf.reshape(tf.tile(x, [1, 16]), [-1, 8, 8, 1])
            kernel = tf1.get_variable("conv/kernel", [3, 3, 1, 4])
            bias = tf1.get_variable("conv/bias", [4], initializer=tf1.zeros_initializer())
            conv = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(image, kernel, 1, "SAME"), bias))
            gamma = tf1.get_variable("norm/gamma", [4], initializer=tf1.ones_initializer())
            beta = tf1.get_variable("norm/beta", [4], initializer=tf1.zeros_initializer())
            normed, _, _ = tf1.nn.fused_batch_norm(conv, gamma, beta)
            flat = tf.nn.dropout(tf.reshape(tf.nn.relu(normed), [-1, 256]), 0.2)
            w1 = tf1.get_variable("hidden/w", [256, 16])
            b1 = tf1.get_variable("hidden/b", [16], initializer=tf1.zeros_initializer())
            hidden = tf.nn.relu(tf.matmul(flat, w1) + b1)
            w2 = tf1.get_variable("out/w", [16, 1])
            noise = tf.random.normal([1], stddev=0.01)
            loss = tf.reduce_mean(tf.square(tf.matmul(hidden, w2) + noise - y)) + 1e-3 * tf.nn.l2_loss(w1)
            optimizer = tf1.train.AdamOptimizer(1e-2)
            pairs = optimizer.compute_gradients(loss)
            clipped, _ = tf.clip_by_global_norm([g for g, _ in pairs], 1.0)
            apply = optimizer.apply_gradients(
                zip(clipped, [v for _, v in pairs], strict=True), tf1.train.get_or_create_global_step()
            )
            train = apply
            if resource:  # TensorFlow itself cannot initialize the averages of reference variables
                with tf.control_dependencies([apply]):
                    train = tf1.train.ExponentialMovingAverage(0.9).apply(tf1.trainable_variables())
    return Program(graph, loss, pairs, train, x, y)


def recurrent() -> Program:
    """A recurrent cell in a while_loop, its outputs gathered."""
    graph = tf.Graph()
    with graph.as_default():
        x, y = tf1.placeholder(tf.float32, [None, 4], "x"), tf1.placeholder(tf.float32, [None, 1], "y")
        with tf1.variable_scope("", use_resource=True):
            w = variable("cell/w", np.random.default_rng(7).normal(size=(4, 3)))
            u = variable("cell/u", 0.5 * np.eye(3))
            v = variable("out/w", np.ones((3, 1)))
        start = tf.zeros([tf.shape(x)[0], 3])

        def body(i: Any, h: Any, outputs: Any) -> Any:
            h = tf.tanh(tf.matmul(x, w) + tf.matmul(h, u))
            return i + 1, h, outputs.write(i, h)

        outputs = tf.TensorArray(tf.float32, size=5)
        _, _, outputs = tf1.while_loop(lambda i, *_: i < 5, body, (0, start, outputs))
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.reduce_sum(outputs.stack(), 0), v) - y))
        optimizer = tf1.train.GradientDescentOptimizer(0.05)
        pairs = optimizer.compute_gradients(loss)
        train = optimizer.apply_gradients(pairs)
    return Program(graph, loss, pairs, train, x, y)


def batches(count: int, bad: int | None = None) -> list[tuple[Any, Any]]:
    """(x float32[8, 4], y float32[8, 1]) for so many steps; x of step `bad` holds one NaN."""
    rng = np.random.default_rng(1)
    found = []
    for step in range(count):
        x = rng.normal(size=(BATCH, 4)).astype(np.float32)
        if step == bad:
            x[3, 2] = np.nan
        found.append((x, rng.normal(size=(BATCH, 1)).astype(np.float32)))
    return found


def train(
    program: Program, data: list[tuple[Any, Any]], watch: Callable[[Any], Any] | None, fetches: Any = None
) -> Any:
    """Losses and the variables at the end, from a plain session that `watch` may wrap."""
    fetches = [program.loss, program.train_op] if fetches is None else fetches
    with program.graph.as_default(), tf1.Session() as sess:
        sess.run(tf1.global_variables_initializer())
        watched = sess if watch is None else watch(sess)
        results = [watched.run(fetches, program.feed(x, y)) for x, y in data]
        variables = sess.run(tf1.global_variables())
    return [r[0] for r in results] if isinstance(fetches, list) else results, variables
