"""Names of layers and variables: by path, stable, unique."""

from __future__ import annotations

from typing import Any

import keras
import pytest
import tensorflow as tf
from keras import layers

from tb_nanwatch.record.naming import Names


def named(*models: Any) -> Names:
    names = Names()
    for model in models:
        names.add_model(model)
    return names


def variables(names: Names) -> list[str]:
    return [v.name for v in names.variables]


def test_sequential() -> None:
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3, name="a"), layers.BatchNormalization(name="bn"), layers.Dense(1, name="b")]
    )
    names = named(model)
    assert variables(names) == [
        "a/kernel",
        "a/bias",
        "bn/gamma",
        "bn/beta",
        "bn/moving_mean",
        "bn/moving_variance",
        "b/kernel",
        "b/bias",
    ]
    assert [v.trainable for v in names.variables] == [True, True, True, True, False, False, True, True]
    assert names.layer(model) == ("", "Sequential")
    assert names.layer(model.layers[1]) == ("bn", "BatchNormalization")
    assert names.layer(layers.Dense(1)) is None
    kernel = names.variable(model.layers[2].kernel)
    assert kernel is not None
    assert (kernel.name, kernel.layer, kernel.layer_class) == ("b/kernel", "b", "Dense")


def test_names_do_not_depend_on_how_a_model_is_built_or_called() -> None:
    def parts() -> list[Any]:
        return [layers.Dense(3, name="a"), layers.Dense(1, name="b")]

    sequential = keras.Sequential([keras.Input((4,)), *parts()])
    inputs = keras.Input((4,))
    first, second = parts()
    functional = keras.Model(inputs, second(first(inputs)))
    late = keras.Sequential(parts())
    late(tf.ones([2, 4]))
    assert variables(named(sequential)) == variables(named(functional)) == variables(named(late))


def test_nested_models_and_shared_layers() -> None:
    inputs = keras.Input((4,))
    shared = layers.Dense(4, name="shared")
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(2, name="d"), layers.Dense(2, name="e")], name="inner")
    model = keras.Model(inputs, inner(shared(shared(inputs))))
    names = named(model)
    assert variables(names) == [
        "shared/kernel",
        "shared/bias",
        "inner/d/kernel",
        "inner/d/bias",
        "inner/e/kernel",
        "inner/e/bias",
    ]
    assert names.layer(inner.layers[0]) == ("inner/d", "Dense")


class Block(layers.Layer):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.first = layers.Dense(3, name="d")
        self.second = layers.Dense(3, name="d")
        self.scale = self.add_weight(shape=(2,), name="scale")
        self.several = [layers.Dense(2, name="in_list"), {"key": layers.Dense(2, name="in_dict")}]

    def call(self, x: Any) -> Any:
        y = self.second(self.first(x))
        return self.several[0](y) + self.several[1]["key"](y) * tf.reduce_sum(self.scale)


def test_subclassed_models_and_doubled_names() -> None:
    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = Block(name="block"), Block(name="block")
            self.own = self.add_weight(shape=(1,), name="own")

        def call(self, x: Any) -> Any:
            return self.two(self.one(x)) * self.own

    model = Model()
    model(tf.ones([2, 3]))
    names = named(model)
    block = ["scale", "d/kernel", "d/bias", "d_1/kernel", "d_1/bias"]
    block += ["in_list/kernel", "in_list/bias", "in_dict/kernel", "in_dict/bias"]
    assert variables(names) == ["own", *(f"block/{n}" for n in block), *(f"block_1/{n}" for n in block)]
    assert names.layer(model.two.second) == ("block_1/d_1", "Dense")
    assert len(model.weights) == len(names.variables)


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (
            lambda: layers.LSTM(2, name="lstm"),
            ["lstm/lstm_cell/kernel", "lstm/lstm_cell/recurrent_kernel", "lstm/lstm_cell/bias"],
        ),
        (
            lambda: layers.Bidirectional(layers.SimpleRNN(2, name="rnn", use_bias=False), name="both"),
            [
                f"both/{way}_rnn/simple_rnn_cell/{name}"
                for way in ("forward", "backward")
                for name in ("kernel", "recurrent_kernel")
            ],
        ),
        (lambda: layers.TimeDistributed(layers.Dense(2, name="d"), name="each"), ["each/d/kernel", "each/d/bias"]),
    ],
)
def test_wrapping_layers(layer: Any, expected: list[str]) -> None:
    keras.backend.clear_session()
    assert variables(named(keras.Sequential([keras.Input((4, 3)), layer()]))) == expected


def test_several_models_with_the_same_names() -> None:
    models = [keras.Sequential([keras.Input((2,)), layers.Dense(1, name="z")]) for _ in range(2)]
    names = named(*models)
    assert variables(names) == ["z/kernel", "z/bias", "z_1/kernel", "z_1/bias"]
    names = Names()
    for label, model in zip("gd", models, strict=True):
        names.add_model(model, label)
    assert variables(names) == ["g/z/kernel", "g/z/bias", "d/z/kernel", "d/z/bias"]


def test_a_model_is_named_once() -> None:
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1, name="z")])
    assert variables(named(model, model)) == ["z/kernel", "z/bias"]


def test_metrics_with_floating_state() -> None:
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1, name="z")])
    model.compile("sgd", "mse", metrics=["mae"])
    model.train_on_batch(tf.ones([2, 2]), tf.ones([2, 1]))
    assert "loss/total" in [m.name for m in named(model).metrics]
    assert variables(named(model)) == ["z/kernel", "z/bias"]


class Inner(tf.Module):
    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.half = tf.Variable(tf.ones([2], tf.float16))


class Outer(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable([1.0])
        self.steps = [tf.Variable([1.0], name="x"), tf.Variable([1.0], name="x")]
        self.inner = Inner()
        self.table = {"key": tf.Variable([1.0], trainable=False)}
        self.count = tf.Variable(1)
        self.dense = layers.Dense(2, name="whatever")
        self.dense.build((None, 3))


def test_modules_by_attribute_path() -> None:
    module = Outer()
    names = Names()
    names.add_module(module)
    assert sorted(variables(names)) == [
        "dense/bias",
        "dense/kernel",
        "inner/half",
        "steps/0",
        "steps/1",
        "table/key",
        "weight",
    ]
    assert {v.name: v.layer for v in names.variables}["inner/half"] == "inner"
    assert [v.name for v in names.variables if not v.trainable] == ["table/key"]
    assert names.layer(module.dense) == ("dense", "Dense")
    assert names.submodule(module.inner) == ("inner", "Inner")
    assert names.submodule(module) == ("", "Outer")
    assert names.submodule(Inner(name="stranger")) == ("stranger", "Inner")


def test_bare_variables_by_their_own_names() -> None:
    names = Names()
    names.add_variables(
        [
            tf.Variable([1.0], name="w"),
            tf.Variable([1.0], name="w"),
            tf.Variable(1, name="whole_number"),
            tf.Variable([1.0], name="scope/inner/v"),
            keras.Variable([1.0], name="keras_variable"),
        ]
    )
    assert variables(names) == ["w", "w_1", "scope/inner/v", "keras_variable"]
    assert [v.layer for v in names.variables] == ["", "", "scope/inner", ""]


def test_handles_tell_whether_the_same_is_watched() -> None:
    module, other = Outer(), Outer()
    names = [Names(), Names(), Names()]
    for one, watched in zip(names, (module, module, other), strict=True):
        one.add_module(watched)
    assert names[0].handles() == names[1].handles()
    assert names[0].handles() != names[2].handles()
