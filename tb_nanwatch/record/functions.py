"""tf.functions under watch: the same function with the watcher's ops at the end of its graph.

A tf.function that was traced before would never come back to the hooks, so a copy is made that is traced anew, with
the same signature, compilation and autograph settings. A tf.function called inside a watched step is copied likewise;
what the hooks saw in it becomes additional outputs, since its tensors cannot be read from outside.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx, converter
from tensorflow.python.autograph.impl import api
from tensorflow.python.eager.polymorphic_function import polymorphic_function

from tb_nanwatch.record import collect

Function: Any = polymorphic_function.Function
_COPY = "_nanwatch_copy"


def is_function(value: Any) -> bool:
    """Whether this is what tf.function returns."""
    return isinstance(value, Function)


def convert(function: Any, around: Callable[[Callable[..., Any], Any, Any], Any]) -> Any:
    """A copy of a tf.function whose body is `around(body, args, kwargs)`."""
    body = _converted(function)

    @tf.autograph.experimental.do_not_convert
    def watched(*args: Any, **kwargs: Any) -> Any:
        return around(body, args, kwargs)

    python_function = function.python_function
    watched.__name__ = getattr(python_function, "__name__", "step")
    with contextlib.suppress(TypeError, ValueError):
        watched.__signature__ = inspect.signature(python_function)
    copy = function._clone(python_function=watched)
    setattr(copy, _COPY, True)
    return copy


def call_nested(
    collector: collect.Collector, original: Callable[..., Any], function: Any, *args: Any, **kwargs: Any
) -> Any:
    """Call a tf.function inside a watched step; what its hooks see is handed to `collector`."""
    # Ours, a library's kernel in disguise, or run eagerly by a replay.
    if getattr(function, _COPY, False) or function._attributes or collector.observer is not None:
        return original(function, *args, **kwargs)
    copies = collector.copies
    if function not in copies:
        copies[function] = convert(function, _exporting)
    result, exported = original(copies[function], *args, **kwargs)
    with collector.guard.contained("reading a nested tf.function"):
        collector.absorb(exported, tf.nest.flatten(result, expand_composites=True))
    return result


def _exporting(body: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    outer = collect.current()
    assert outer is not None  # a copy is traced where it is called
    inner = outer.inside()
    with collect.collecting(inner):
        result = body(*args, **kwargs)
    with collect.paused():
        return result, inner.exported(tf.nest.flatten(result, expand_composites=True))


def _converted(function: Any) -> Callable[..., Any]:
    """The Python body, converted by autograph as the function itself would do it."""
    python_function = function.python_function
    if not function._autograph:
        return tf.autograph.experimental.do_not_convert(python_function)
    options = converter.ConversionOptions(
        recursive=True, optional_features=function._experimental_autograph_options, user_requested=True
    )

    def body(*args: Any, **kwargs: Any) -> Any:
        with ag_ctx.ControlStatusCtx(status=ag_ctx.Status.ENABLED, options=options):
            return api.converted_call(python_function, args, kwargs, options=options)

    return body
