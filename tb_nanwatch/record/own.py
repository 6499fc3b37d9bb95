"""tf.functions and variables of the recorder itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops


def function(python_function: Callable[..., Any], **settings: Any) -> Any:
    """Like tf.function, without autograph; TensorFlow shall not complain to users about its tracing."""
    made = tf.function(python_function, autograph=False, **settings)
    made._omit_frequent_tracing_warning = True
    return made


def variable(initial: Any, name: str) -> Any:
    """A plain variable on this device, also inside the scope of a strategy, which would mirror a tf.Variable."""
    with tf.init_scope():
        return resource_variable_ops.ResourceVariable(initial, trainable=False, name=f"nanwatch_{name}")
