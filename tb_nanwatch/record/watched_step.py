"""The entry point for custom loops: `watch(train_step, logdir, model=..., optimizer=...)`, and `tap`."""

from __future__ import annotations

import functools
import inspect
import os
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import tensorflow as tf

from tb_nanwatch.errors import UsageError
from tb_nanwatch.record import collect, kernels, off
from tb_nanwatch.record import options as options_module
from tb_nanwatch.record.applied.trial import under_trial
from tb_nanwatch.record.functions import Function, convert, is_function
from tb_nanwatch.record.naming import Names, is_layer
from tb_nanwatch.record.optimizers import Optimizers, variables_of
from tb_nanwatch.record.recorder import Recorder
from tb_nanwatch.record.replay.memory import Ways


def watch(
    step: Callable[..., Any],
    logdir: str | os.PathLike[str],
    model: Any = None,
    optimizer: Any = None,
    variables: Iterable[Any] | None = None,
    **options: Any,
) -> WatchedStep | Unwatched | off.Plain:
    """Watch a training step of any kind: eager, tf.function, jit_compile.

    Args:
        step: the function that trains on one batch. Called with the same arguments, it gives the same result.
        logdir: folder of this run.
        model: a Keras model, a tf.Module, or a list or dict of them.
        optimizer: a Keras optimizer, or a list or dict of them; only needed for learning rate, loss scale and
        iterations.
        variables: variables to watch where there is no model.
        **options: see `tb_nanwatch.record.options.Options`.

    Returns:
        A WatchedStep; under a strategy that cannot be watched, the step as it was.

    Raises:
        UsageError: a step that cannot be called, nothing to watch, an option that is not allowed, or a logdir that
            cannot be written.
    """
    checked = options_module.parse(options)
    if checked.on_nonfinite == "stop":  # a loop that is not ours can only be stopped by an exception
        checked = replace(checked, on_nonfinite="raise")
    if not callable(step):
        raise UsageError(
            f"watch takes the function that trains on one batch, not {type(step).__name__}: "
            "watch(train_step, logdir, model=model, optimizer=optimizer)"
        )
    names = Names()
    models = _several(model)
    for label, one in models:
        _add(names, one, prefix=label if len(models) > 1 else "")
    if variables is not None:
        names.add_variables(list(variables))
    if not names and not names.variables:
        raise UsageError(
            "nothing to watch: pass model= (a Keras model or a tf.Module with variables) or variables=[...]"
        )
    if off.left_off(logdir):
        return Unwatched.of(step) if is_function(step) else off.Plain(step)
    first = next((one for _, one in _several(optimizer)), None)
    holders = [one for _, one in [*_several(model), *_several(optimizer)]]
    bare = list(variables or ())

    def state() -> Iterable[Any]:
        return [*bare, *variables_of(holders)]

    where, checked, trying = under_trial(logdir, checked)
    if trying is not None:
        trying.begin(names, [one for _, one in models], [one for _, one in _several(optimizer)])
    recorder = Recorder(where, checked, names, Optimizers(_several(optimizer)), "watch", state=state, trying=trying)
    if not recorder.running and is_function(step):  # whoever schedules it on other machines wants a tf.function
        recorder.close()
        return Unwatched.of(step)
    return WatchedStep(step, recorder, first)


def tap(name: str, tensor: Any) -> Any:
    """Mark an extra tensor inside a watched step; gives the tensor back, and does nothing outside one."""
    collector = collect.current()
    if collector is not None and kernels.measurable(tensor) is not None:
        collector.tap(name, tensor)
    return tensor


class WatchedStep:
    """A step under watch. Call it as the original; `close` it at the end, or use it as a context manager."""

    def __init__(self, step: Callable[..., Any], recorder: Recorder, optimizer: Any = None) -> None:
        functools.update_wrapper(self, step, updated=())
        self._recorder = recorder
        self._original: Any = step
        self._end = weakref.finalize(self, recorder.close)  # also when the process ends
        self._names = _argument_names(step)
        if is_function(step):
            self._step = convert(step, self._run_inside)
            self._by_hand: Any = getattr(step, "python_function", step)
            self._inside = True
        else:
            self._step = self._by_hand = step
            self._inside = False
        if recorder.rewind is not None:
            recorder.rewind.ways = Ways(
                run=self._again,
                by_hand=lambda data: self._by_hand(*data[0], **data[1]),
                fresh=self._fresh if self._inside else None,
                inputs=lambda data: (*data[0], *data[1].values()),
                optimizer=optimizer,
            )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._recorder.begin()
        names = self._argument_names(args, kwargs)
        self._recorder.before_call((args, kwargs), names, (*args, *kwargs.values()))
        try:
            if self._inside:
                result = self._step(*args, **kwargs)
            else:
                result = self._run_inside(self._step, args, kwargs)
        except Exception as error:
            self._recorder.failed(error)
            raise
        self._recorder.after_call()
        return result

    def close(self) -> None:
        """Write what is left and end the recording."""
        self._end()

    def __enter__(self) -> WatchedStep:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def _again(self, data: Any) -> Any:
        """The watched step on what `before_call` was given as data."""
        args, kwargs = data
        return self._step(*args, **kwargs) if self._inside else self._run_inside(self._step, args, kwargs)

    def _fresh(self) -> Callable[[Any], Any]:
        """The unwatched step anew, as a function of what `before_call` was given as data."""
        copy = self._original._clone(None)
        return lambda data: copy(*data[0], **data[1])

    def _run_inside(self, step: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        names = self._argument_names(args, kwargs)
        count = len(args)

        def of_flat(*given: Any) -> Any:
            return step(*given[:count], **dict(zip(kwargs, given[count:], strict=True)))

        return self._recorder.run_step(of_flat, (*args, *kwargs.values()), names)

    def _argument_names(self, args: Any, kwargs: Any) -> list[str]:
        if len(args) > len(self._names):
            return [*(str(n) for n in range(len(args))), *kwargs]
        return [*self._names[: len(args)], *kwargs]


class Unwatched(off.Inert, Function):
    """A tf.function as it was, where watching is not supported; with what a WatchedStep has."""

    @classmethod
    def of(cls, function: Any) -> Any:
        copy = function._clone(None)
        copy.__class__ = cls
        return copy


def _several(value: Any) -> list[tuple[str, Any]]:
    """(label, object) of one or several: the keys of a dict, else the objects' own names."""
    if isinstance(value, dict):
        return [(str(key), one) for key, one in value.items()]
    several = value if isinstance(value, list | tuple) else [] if value is None else [value]
    return [(str(getattr(one, "name", "")), one) for one in several]


def _add(names: Names, model: Any, prefix: str) -> None:
    if is_layer(model):
        names.add_model(model, prefix)
    elif isinstance(model, tf.Module):
        names.add_module(model, prefix)
    else:
        raise UsageError(
            f"model= takes a Keras model or a tf.Module, not {type(model).__name__}; "
            "use variables=[...] for bare variables"
        )


def _argument_names(step: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(getattr(step, "python_function", step)).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
