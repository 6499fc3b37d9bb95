"""The Keras entry point: a callback that watches `fit`.

It puts itself around `train_step` (which is traced into the compiled step) and around `train_function` (which the
loop calls), from the beginning of a fit to its end. It implements no batch-level method, so Keras keeps passing
logs between batches as it would without it.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from contextlib import nullcontext
from types import FrameType
from typing import Any

import keras
import tensorflow as tf

from tb_nanwatch.record import off
from tb_nanwatch.record import options as options_module
from tb_nanwatch.record.applied.trial import under_trial
from tb_nanwatch.record.beside import Beside
from tb_nanwatch.record.guard import Guard
from tb_nanwatch.record.naming import Names
from tb_nanwatch.record.optimizers import Optimizers, labelled, variables_of
from tb_nanwatch.record.recorder import Recorder
from tb_nanwatch.record.recording import say_superseded
from tb_nanwatch.record.replay.groups import Staged
from tb_nanwatch.record.replay.memory import Ways

_watchers: weakref.WeakKeyDictionary[Any, weakref.ref[NanWatch]] = weakref.WeakKeyDictionary()


class NanWatch(keras.callbacks.Callback):
    """Watches a Keras `fit`: `model.fit(..., callbacks=[NanWatch("logs/run1")])`.

    Args:
        logdir: folder of this run; one logdir is one run.
        **options: see `tb_nanwatch.record.options.Options`.

    Raises:
        UsageError: an unknown option, a value that is not allowed, or (when fit begins) a logdir that cannot be
        written.
        NonFiniteError: out of `fit`, with on_nonfinite="raise".
    """

    def __init__(self, logdir: str | os.PathLike[str], **options: Any) -> None:
        super().__init__()
        self._logdir = os.fspath(logdir)
        self._options = options_module.parse(options)
        self._recorder: Recorder | None = None
        self._begins = False  # a fit has begun, and none of its epochs
        self._end: weakref.finalize[Any, Any] | None = None
        self._key: tuple[Any, ...] = ()
        self._watched: tuple[Any, Any] | None = None  # train_step and train_function under watch
        self._replaced: tuple[Any, Any, Any] | None = None  # a model, and what was in their place
        self._beside: Beside | None = None  # of the fit that is watched

    # ------------------------------------------------------------ called by Keras 3, and by Keras 2

    _supports_tf_logs = True  # Keras 2: logs may stay tensors

    def _implements_train_batch_hooks(self) -> bool:
        return False

    _implements_test_batch_hooks = _implements_predict_batch_hooks = _implements_train_batch_hooks

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002  # Keras's signature
        if off.left_off(self._logdir):
            return
        model = self.model
        earlier = _watchers.get(model, lambda: None)()
        if earlier is not None and earlier is not self:
            if earlier._begins:  # a fit that was given both
                say_superseded(earlier._logdir, self._logdir)
            earlier.close()
        _watchers[model] = weakref.ref(self)
        self._uninstall()  # a fit that ended in an exception of another callback did not say so
        self._begins = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """The first one begins the recording: until then, other callbacks may restore a checkpoint."""
        if not self._begins:
            return
        self._begins, model = False, self.model
        with Guard().contained("beginning to watch a fit"):
            key = _key(model)
            if self._recorder is None or not self._recorder.running or not _same(key, self._key):
                self.close()
                self._recorder, self._key = self._new_recorder(model), key
                self._end = weakref.finalize(self, self._recorder.close)  # also when the process ends
            self._install(model, self._recorder)
            fit = _fit_of(model, sys._getframe(1))
            callbacks = None if fit is None else fit.f_locals.get("callbacks")
            self._beside = Beside(model, callbacks, functools.partial(self._ended_beside, self._recorder))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
        """Note what a validation inside the fit found. Its steps are none of the training."""
        found = {key.removeprefix("val_"): v for key, v in (logs or {}).items() if key.startswith("val_")}
        if found and self._recorder is not None:
            self._recorder.validated(found)

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002
        self._begins = False
        self._uninstall()
        if self._recorder is not None:
            self._recorder.flush()

    # ------------------------------------------------------------ for users

    def close(self) -> None:
        """End the recording. Called by itself when the process ends."""
        self._uninstall()
        self._begins = False
        if self._end is not None:
            self._end()
        self._recorder = self._watched = self._end = None
        self._key = ()

    # ------------------------------------------------------------

    def _ended_beside(self, recorder: Recorder, error: BaseException) -> None:
        recorder.failed(error)
        self._uninstall()

    def _new_recorder(self, model: Any) -> Recorder:
        names = Names()
        names.add_model(model)
        steps = int(getattr(model, "steps_per_execution", 1) or 1)
        optimizers = labelled(model)
        logdir, options, trying = under_trial(self._logdir, self._options)
        if trying is not None:
            trying.begin(names, [model], [model.optimizer])
        return Recorder(
            logdir,
            options,
            names,
            Optimizers(optimizers),
            "keras_fit",
            slots=1 if model.run_eagerly else steps,
            state=lambda: variables_of([model, *(one for _, one in optimizers)]),
            trying=trying,
        )

    def _install(self, model: Any, recorder: Recorder) -> None:
        step = model.train_step

        def watched_step(data: Any) -> Any:
            return recorder.run_step(step, (data,), ["x", "y", "sample_weight"])

        self._replaced = (model, model.__dict__.get("train_step"), model.train_function)
        make = model.make_train_function
        object.__setattr__(model, "make_train_function", self._made_anew(model, make))
        if self._watched is None:  # else the traced function of the fit before serves again
            object.__setattr__(model, "train_step", watched_step)
            make(force=True)
            self._watched = (watched_step, self._around(model.train_function, step, recorder, model))
        object.__setattr__(model, "train_step", self._watched[0])
        model.train_function = self._watched[1]

    def _around(self, function: Any, step: Any, recorder: Recorder, model: Any) -> Any:
        batches = _Batches(function, step, model)
        staged: Staged | None = None
        if recorder.rewind is not None and (recorder.slots == 1 or batches.takes_any):
            recorder.rewind.ways = Ways(batches.again, batches.by_hand, batches.fresh, optimizer=model.optimizer)
            if recorder.slots > 1:
                staged = recorder.rewind.staged = Staged(recorder.slots, recorder.guard)
        elif recorder.rewind is not None:
            recorder.rewind.why_not = "grouped steps of this version of Keras take their batches themselves"

        def watched_function(iterator: Any) -> Any:
            try:
                recorder.begin()
                data = None
                if staged is not None:
                    recorder.before_group()
                elif recorder.rewind is not None and recorder.rewind.on:
                    recorder.rewind.why_not = batches.why_not(iterator)
                    data = None if recorder.rewind.why_not else next(iterator, None)
                if data is not None:
                    recorder.before_call(data, ["x", "y", "sample_weight"])
                    logs = batches.again(data)
                else:  # also at the end of the data: what Keras runs there counts an iteration of the optimizer
                    with nullcontext() if staged is None else staged.listening():
                        logs = function(iterator)
            except (StopIteration, tf.errors.OutOfRangeError):  # the end of an epoch
                raise
            except BaseException as error:
                recorder.failed(error)
                self._uninstall()
                raise
            try:
                recorder.after_call()
            except BaseException:
                self._uninstall()
                raise
            if recorder.stop_requested:
                model.stop_training = True
            return logs

        return watched_function

    def _made_anew(self, model: Any, original: Any) -> Any:
        """Every fit begins with this. Another one may begin without us, when a callback's exception ended ours."""

        def make_train_function(*args: Any, **kwargs: Any) -> Any:
            if _fit_of(model, sys._getframe(1).f_back) is None:
                self._uninstall()
            return original(*args, **kwargs)

        return make_train_function

    def _uninstall(self) -> None:
        """Leave the model as it was: its own train_step and train_function."""
        if self._beside is not None:
            self._beside.end()
            self._beside = None
        if self._replaced is None:
            return
        model, step, function = self._replaced
        model.__dict__.pop("train_step", None)
        if step is not None:
            object.__setattr__(model, "train_step", step)
        if self._watched is None or model.train_function is self._watched[1]:
            model.train_function = function
        model.__dict__.pop("make_train_function", None)
        self._replaced = None  # last, so that an interrupt before this leaves something to go by


class _Batches:
    """Batches handed to Keras one by one, so that they can be kept and run again.

    Keras 3.7 and later trains on what any Python iterator gives; Keras 2 wants an iterator of tf.data.
    """

    def __init__(self, function: Any, step: Any, model: Any) -> None:
        self._function = function
        self._step = step
        self._model = model
        self.takes_any = hasattr(model, "_make_function") or _version(keras.__version__) >= (3, 7)
        self.takes_any &= isinstance(model, keras.Model)

    def why_not(self, iterator: Any) -> str:
        """Why batches of this iterator cannot be kept; empty where they can."""
        if isinstance(iterator, tf.data.Iterator):
            return ""
        if not isinstance(iterator, tf.distribute.DistributedIterator):
            return f"batches of a {type(iterator).__name__} cannot be kept"
        return "" if self.takes_any else "this version of Keras takes its batches itself from a strategy"

    def again(self, data: Any) -> Any:
        """One batch through the compiled train function."""
        if self.takes_any:
            return self._function(iter((data,)))
        return self._function(iter(tf.data.Dataset.from_tensors(data)))

    def by_hand(self, data: Any) -> Any:
        """One batch, or a replica's part of it, through the model's own train_step, eagerly."""
        given, strategy = _without_optionals(data), self._model.distribute_strategy
        if tf.distribute.has_strategy() or strategy is not tf.distribute.get_strategy():
            return strategy.run(self._step, args=(given,))
        return self._step(given)

    def fresh(self) -> Any:
        """The train function anew, unwatched, as a function of a batch."""
        kept = self._model.train_function, self._model.__dict__.pop("train_step", None)
        try:
            object.__setattr__(self._model, "train_step", self._step)
            self._model.make_train_function(force=True)
            function = self._model.train_function
        finally:
            self._model.train_function = kept[0]
            self._model.__dict__.pop("train_step", None)
            if kept[1] is not None:
                object.__setattr__(self._model, "train_step", kept[1])
        if self.takes_any:
            return lambda data: function(iter((data,)))
        return lambda data: function(iter(tf.data.Dataset.from_tensors(data)))


def _without_optionals(data: Any) -> Any:
    """Keras passes absent parts of a batch as tf.experimental.Optional."""
    if isinstance(data, tuple | list):
        return type(data)(_without_optionals(part) for part in data)
    if isinstance(data, dict):
        return {key: _without_optionals(part) for key, part in data.items()}
    return None if isinstance(data, tf.experimental.Optional) else data


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


def _fit_of(model: Any, frame: FrameType | None) -> FrameType | None:
    """The fit of this model, in one of its epochs, that runs in or around `frame`; None without one."""
    while frame is not None:
        if frame.f_code.co_name == "fit" and frame.f_locals.get("self") is model and "epoch" in frame.f_locals:
            return frame
        frame = frame.f_back
    return None


def _key(model: Any) -> tuple[Any, ...]:
    """What a recorder and a traced step hold on to; compiling a model anew changes it."""
    settings = (model.run_eagerly, model.jit_compile, getattr(model, "steps_per_execution", 1))
    return (model, model.optimizer, getattr(model, "_compile_loss", None), *settings)


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    objects = zip(one[:3], other[:3], strict=True) if other else ((one, other),)
    return all(a is b for a, b in objects) and one[3:] == other[3:]
