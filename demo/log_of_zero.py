"""A cross-entropy written by hand: log(0) is -Inf, and 0 * -Inf is NaN.

The softmax of a confident network underflows: a class whose logit is about 104 behind the winner's gets the
probability 0, exactly. The sum then multiplies its logarithm, -Inf, with a label of 0. The high learning rate only
makes the network confident sooner.

Cure: let the library compute the loss from the logits; it never takes that logarithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from datasets import batches, digits
from options import parse

import tb_nanwatch as nanwatch


def main(argv: Sequence[str] | None = None) -> None:
    """Train once."""
    options = parse(__doc__, argv, steps=200)
    keras.utils.set_random_seed(0)
    x, y = digits()
    model = keras.Sequential(
        [
            keras.Input([8, 8, 1]),
            keras.layers.Flatten(name="pixels"),
            keras.layers.Dense(64, activation="relu", name="hidden"),
            keras.layers.Dense(10, name="logits"),
        ]
    )
    optimizer = keras.optimizers.Adam(0.2)

    def loss_of(labels: Any, logits: Any) -> Any:
        targets = tf.one_hot(labels, 10)
        if options.cure:
            return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(targets, logits))
        probabilities = tf.nn.softmax(logits)
        return -tf.reduce_mean(tf.reduce_sum(targets * tf.math.log(probabilities), axis=1))

    @tf.function
    def train_step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    step = nanwatch.watch(train_step, options.logdir, model=model, optimizer=optimizer)
    for images, labels in batches(x, y, 64, options.steps):
        step(images, labels)
    step.close()


if __name__ == "__main__":
    main()
