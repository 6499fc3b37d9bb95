"""tf.functions of the recorder itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def function(python_function: Callable[..., Any], **settings: Any) -> Any:
    """Like tf.function, without autograph; TensorFlow shall not complain to users about its tracing."""
    made = tf.function(python_function, autograph=False, **settings)
    made._omit_frequent_tracing_warning = True
    return made
