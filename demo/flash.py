"""A NaN that flashes by: one blank image, one lost step, and training goes on.

A convolutional net first brings every image to the same contrast: minus its mean, divided by its deviation. One
image is blank, its deviation is 0, and 0 / 0 is NaN. The loop leaves out updates that are not finite, so the
weights survive and no log of losses that is read every hundred steps would ever tell.

Cure: a small constant below the fraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from datasets import batches, digits
from options import parse

import tb_nanwatch as nanwatch


class Contrast(keras.layers.Layer):  # type: ignore[misc,unused-ignore]  # Keras is untyped
    """Each image with mean 0 and deviation 1: [n, 8, 8, 1] to the same shape."""

    def __init__(self, epsilon: float, name: str) -> None:
        super().__init__(name=name)
        self.epsilon = epsilon

    def call(self, images: Any) -> Any:
        """Normalize over everything but the batch."""
        mean, variance = tf.nn.moments(images, axes=[1, 2, 3], keepdims=True)
        return (images - mean) / (tf.sqrt(variance) + self.epsilon)


def main(argv: Sequence[str] | None = None) -> None:
    """Train once."""
    options = parse(__doc__, argv, steps=56)
    keras.utils.set_random_seed(0)
    x, y = digits()
    x[32 * 25 + 7] = 0  # a blank scan: sample 7 of step 25
    model = keras.Sequential(
        [
            keras.Input([8, 8, 1]),
            Contrast(1e-3 if options.cure else 0.0, name="contrast"),
            keras.layers.Conv2D(8, 3, activation="tanh", name="edges"),
            keras.layers.Conv2D(16, 3, activation="tanh", name="shapes"),
            keras.layers.GlobalAveragePooling2D(name="pool"),
            keras.layers.Dense(10, name="digit"),
        ]
    )
    optimizer = keras.optimizers.Adam(0.01)

    @tf.function
    def train_step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        gradients = tape.gradient(loss, model.trainable_variables)
        usable = [tf.where(tf.math.is_finite(g), g, 0.0) for g in gradients]
        optimizer.apply_gradients(zip(usable, model.trainable_variables, strict=True))
        return loss

    with nanwatch.watch(train_step, options.logdir, model=model, optimizer=optimizer) as step:
        for images, labels in batches(x, y, 32, options.steps):
            step(images, labels)


if __name__ == "__main__":
    main()
