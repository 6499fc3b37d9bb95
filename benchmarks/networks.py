"""The networks that are trained while the cost of watching is measured, each with data that was made in advance.

Importing this module loads no TensorFlow; building a network does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

BATCHES: Final = 32  # different ones, again and again: enough that random labels are not learned by heart meanwhile


@dataclass(frozen=True)
class Network:
    """What to train.

    build gives a Keras model that ends in logits. data gives inputs, float32 or int32 [BATCHES, batch, ...], and
    labels, int32 [BATCHES, batch] or, where every position has one, [BATCHES, batch, positions]. group_steps: steps
    driven at a time, more where a step is short.
    """

    title: str
    build: Callable[[], Any]
    data: Callable[[], tuple[Array, Array]]
    optimizer: Callable[[], Any]
    group_steps: int


def _adam() -> Any:
    import keras

    return keras.optimizers.Adam(1e-4)


def _momentum() -> Any:
    import keras

    return keras.optimizers.SGD(0.01, momentum=0.9)


# ---------------------------------------------------------------- multi-layer perceptron


def _mlp() -> Any:
    import keras

    hidden = [keras.layers.Dense(1024, activation="relu") for _ in range(3)]
    return keras.Sequential([keras.Input([784]), *hidden, keras.layers.Dense(10)])


# ---------------------------------------------------------------- residual network


def _cnn() -> Any:
    """20 layers with weights in a row: a convolution, three stages of three blocks of two, a dense layer."""
    import keras

    inputs = keras.Input([32, 32, 3])
    x = _convolution(inputs, 16, 1)
    for width in (16, 32, 64):
        for block in range(3):
            stride = 2 if width > 16 and block == 0 else 1
            inner = _convolution(x, width, stride)
            inner = _convolution(inner, width, 1, relu=False)
            shortcut = x if stride == 1 else keras.layers.Conv2D(width, 1, strides=stride, use_bias=False)(x)
            x = keras.layers.ReLU()(keras.layers.Add()([inner, shortcut]))
    return keras.Model(inputs, keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(x)))


def _convolution(x: Any, width: int, stride: int, relu: bool = True) -> Any:
    import keras

    x = keras.layers.Conv2D(width, 3, strides=stride, padding="same", use_bias=False)(x)
    x = keras.layers.BatchNormalization()(x)
    return keras.layers.ReLU()(x) if relu else x


# ---------------------------------------------------------------- transformer

VOCABULARY: Final = 256
POSITIONS: Final = 128
WIDTH: Final = 256


def _transformer() -> Any:
    """A language model over bytes: 4 layers, normalized before each part, 4 heads, causal."""
    import keras

    class Positions(keras.layers.Layer):
        """Adds a learned vector for each position."""

        def build(self, shape: Any) -> None:
            self.table = self.add_weight(shape=shape[1:], initializer="random_normal", name="table")

        def call(self, x: Any) -> Any:
            return x + self.table

    inputs = keras.Input([POSITIONS], dtype="int32")
    x = Positions()(keras.layers.Embedding(VOCABULARY, WIDTH)(inputs))
    for _ in range(4):
        normal = keras.layers.LayerNormalization()(x)
        attended = keras.layers.MultiHeadAttention(4, WIDTH // 4, dropout=0.1)(normal, normal, use_causal_mask=True)
        x = keras.layers.Add()([x, attended])
        inner = keras.layers.Dense(4 * WIDTH, activation="gelu")(keras.layers.LayerNormalization()(x))
        x = keras.layers.Add()([x, keras.layers.Dropout(0.1)(keras.layers.Dense(WIDTH)(inner))])
    return keras.Model(inputs, keras.layers.Dense(VOCABULARY)(keras.layers.LayerNormalization()(x)))


# ---------------------------------------------------------------- recurrent network


def _lstm() -> Any:
    import keras

    layers = [keras.layers.LSTM(256, return_sequences=True), keras.layers.LSTM(256), keras.layers.Dense(10)]
    return keras.Sequential([keras.Input([64, 64]), *layers])


# ---------------------------------------------------------------- data


def _numbers(batch: int, *shape: int) -> Callable[[], tuple[Array, Array]]:
    def data() -> tuple[Array, Array]:
        rng = np.random.default_rng(0)
        x = rng.standard_normal((BATCHES, batch, *shape), np.float32)
        return x, rng.integers(0, 10, (BATCHES, batch), np.int32)

    return data


def _text() -> tuple[Array, Array]:
    text = np.random.default_rng(0).integers(0, VOCABULARY, (BATCHES, 16, POSITIONS + 1), np.int32)
    return text[..., :-1], text[..., 1:]


NETWORKS: Final[dict[str, Network]] = {
    "mlp": Network("MLP 784-1024x3-10, Adam, batch 128", _mlp, _numbers(128, 784), _adam, 20),
    "cnn": Network("20-layer residual CNN on 32x32, momentum, batch 64", _cnn, _numbers(64, 32, 32, 3), _momentum, 10),
    "transformer": Network("4-layer transformer, d 256, sequence 128, Adam, batch 16", _transformer, _text, _adam, 10),
    "lstm": Network("2-layer LSTM, 256 units, sequence 64, Adam, batch 64", _lstm, _numbers(64, 64, 64), _adam, 10),
}
