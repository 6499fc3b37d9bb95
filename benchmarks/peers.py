"""The trainings that are compared: plain, under this package, and under what else TensorFlow's users have.

All train the same network from the same seeds on the same batches; each is a model of its own. A variant that cannot
run raises from its constructor, and what it raises is the reason that the table gives.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import keras
import tensorflow as tf
from networks import Network

import tb_nanwatch as nanwatch

WARM_UP_STEPS: Final = 24  # what happens every tenth step has happened more than once, and is traced
GROUPED: Final = 8  # steps_per_execution of the mode of that name


@dataclass(frozen=True)
class Setting:
    """Where a training takes place. mode and style: see overhead.py; logdir: for what it records."""

    network: Network
    mode: str
    style: str
    logdir: Path

    @property
    def compiled(self) -> bool:
        """By XLA."""
        return self.mode == "xla"

    @property
    def grouped(self) -> int:
        """Steps in a call."""
        return GROUPED if self.mode == "grouped" else 1


class Unsuited(Exception):
    """A variant that does not exist in this setting."""


class Plain:
    """A training without anything, and the frame for the others."""

    own_thread: ClassVar[bool] = False

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.driven = 0
        self.epoch = 0
        keras.utils.set_random_seed(0)
        self.begin()
        mirrored = setting.mode == "mirrored"
        self.strategy = tf.distribute.MirroredStrategy(["/CPU:0", "/CPU:1"]) if mirrored else None
        with self.strategy.scope() if self.strategy else contextlib.nullcontext():
            self.model = setting.network.build()
            self.optimizer = setting.network.optimizer()
            self.optimizer.build(self.model.trainable_variables)
            self.adapt()
        self._batches = self._endless()
        self._callbacks = keras.callbacks.CallbackList([])
        self._step = self._fit_step() if setting.style == "fit" else self._loop_step()
        self.steps(WARM_UP_STEPS)
        self.epoch_end()

    # ------------------------------------------------------------ what variants change

    def begin(self) -> None:
        """Before anything is made."""

    def adapt(self) -> None:
        """When model and optimizer are there, and nothing is traced yet."""

    def callbacks(self) -> list[Any]:
        """For fit."""
        return []

    def around(self, step: Any) -> Any:
        """For loop: the tf.function, or what is called in its place."""
        return step

    def settle(self) -> None:
        """Wait until all that was recorded is with the operating system."""

    def close(self) -> None:
        """At the end."""

    # ------------------------------------------------------------ driving

    def steps(self, count: int) -> None:
        """Train on so many batches, and `settle`."""
        for _ in range(count // self.setting.grouped):
            self._step()
        self.driven += count
        self.settle()

    def _endless(self) -> Any:
        """Iterator of batches; of a half for each replica, where there are two."""
        x, y = self.setting.network.data()
        if self.strategy is None:
            return iter(tf.data.Dataset.from_tensor_slices((tf.constant(x), tf.constant(y))).repeat())
        halves = [part.reshape(2 * part.shape[0], part.shape[1] // 2, *part.shape[2:]) for part in (x, y)]
        data = tf.data.Dataset.from_tensor_slices(tuple(tf.constant(part) for part in halves)).repeat()
        return iter(self.strategy.distribute_datasets_from_function(lambda _: data))

    def epoch_end(self) -> None:
        """What callbacks do at the end of an epoch."""
        self._callbacks.on_epoch_end(self.epoch, {})
        self.epoch += 1
        self._callbacks.on_epoch_begin(self.epoch)

    def _fit_step(self) -> Callable[[], None]:
        """What `fit` does with each batch. The loop of `fit` itself could not be left and entered again."""
        model = self.model
        with self.strategy.scope() if self.strategy else contextlib.nullcontext():
            settings = {"jit_compile": self.setting.compiled, "steps_per_execution": self.setting.grouped}
            model.compile(self.optimizer, _loss(), **settings)
        self._callbacks = keras.callbacks.CallbackList(self.callbacks(), model=model)
        model.make_train_function()
        self._callbacks.on_train_begin()
        self._callbacks.on_epoch_begin(0)
        number = 0

        def step() -> None:
            nonlocal number
            self._callbacks.on_train_batch_begin(number)
            logs = model.train_function(self._batches)
            self._callbacks.on_train_batch_end(number + self.setting.grouped - 1, logs)
            number += self.setting.grouped

        return step

    def _loop_step(self) -> Callable[[], None]:
        model, optimizer, loss_of, strategy = self.model, self.optimizer, _loss(), self.strategy
        if self.setting.grouped > 1:
            raise Unsuited("steps are grouped by fit: needs --style fit")

        def replica_step(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = loss_of(y, model(x, training=True))
            variables = model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        @tf.function(jit_compile=self.setting.compiled)
        def train_step(x: Any, y: Any) -> Any:
            if strategy is None:
                return replica_step(x, y)
            return strategy.reduce("MEAN", strategy.run(replica_step, args=(x, y)), axis=None)

        step = self.around(train_step)
        return lambda: step(*next(self._batches))


def _loss() -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Watched(Plain):
    """This package with default options."""

    _watcher: Any = None

    def callbacks(self) -> list[Any]:
        """The callback."""
        self._watcher = nanwatch.NanWatch(self.setting.logdir)
        return [self._watcher]

    def around(self, step: Any) -> Any:
        """The watched step."""
        self._watcher = nanwatch.watch(step, self.setting.logdir, model=self.model, optimizer=self.optimizer)
        return self._watcher

    def settle(self) -> None:
        """Users need no such call; here the writing thread must not work while another variant is measured."""
        self._watcher._recorder.flush()  # noqa: SLF001

    def close(self) -> None:
        """Ends the recording. Raises RuntimeError if it lacks a step: then its cost means nothing."""
        from tb_nanwatch.store.catalog import Catalog

        self._watcher.close()
        catalog = Catalog(self.setting.logdir)
        catalog.refresh()
        recorded = sum(run.steps for run in catalog.runs().values())
        if recorded != self.driven:
            raise RuntimeError(f"{recorded} of {self.driven} steps were recorded")


class CheckNumerics(Plain):
    """tf.debugging.enable_check_numerics: every op's output is checked, nothing is recorded."""

    own_thread = True

    def begin(self) -> None:
        """Before anything is traced."""
        tf.debugging.enable_check_numerics()


class DebuggerV2(Plain):
    """The dump that TensorBoard's Debugger V2 shows, of every execution, as its guide has it."""

    own_thread = True
    mode: ClassVar[str]
    _writer: Any = None

    def begin(self) -> None:
        """Before anything is traced."""
        self._writer = tf.debugging.experimental.enable_dump_debug_info(
            str(self.setting.logdir), tensor_debug_mode=self.mode, circular_buffer_size=-1
        )

    def settle(self) -> None:
        """Empty its buffers."""
        self._writer.FlushNonExecutionFiles()
        self._writer.FlushExecutionFiles()


class DebuggerCurt(DebuggerV2):
    """A flag for every op's output."""

    mode = "CURT_HEALTH"


class DebuggerFull(DebuggerV2):
    """Counts of NaN, infinities, zeros and signs for every op's output."""

    mode = "FULL_HEALTH"


class Histograms(Plain):
    """Keras's TensorBoard callback: a histogram of every weight at the end of every epoch."""

    def callbacks(self) -> list[Any]:
        """The callback."""
        return [keras.callbacks.TensorBoard(self.setting.logdir, histogram_freq=1)]

    def around(self, step: Any) -> Any:  # noqa: ARG002
        """There is no such thing."""
        raise Unsuited("a Keras callback: needs --style fit")


class NormScalars(Plain):
    """tf.summary.scalar of the norms of weights and gradients, written by hand into the step."""

    _writer: Any = None

    def adapt(self) -> None:
        """Write when the optimizer gets the gradients."""
        self._writer = tf.summary.create_file_writer(str(self.setting.logdir))
        optimizer, apply = self.optimizer, self.optimizer.apply

        def reporting(gradients: Any, variables: Any = None) -> Any:
            with self._writer.as_default(step=tf.cast(tf.convert_to_tensor(optimizer.iterations), tf.int64)):
                for gradient, variable in zip(gradients, variables, strict=True):
                    weight = tf.convert_to_tensor(variable)
                    tf.summary.scalar(f"{variable.path}/norm", tf.norm(weight))
                    tf.summary.scalar(f"{variable.path}/gradient_norm", tf.norm(tf.convert_to_tensor(gradient)))
            return apply(gradients, variables)

        optimizer.apply = reporting

    def settle(self) -> None:
        """Empty its queue."""
        self._writer.flush()


KINDS: Final[dict[str, type[Plain]]] = {
    "plain": Plain,
    "control": Plain,
    "nanwatch": Watched,
    "check_numerics": CheckNumerics,
    "debugger_v2_curt": DebuggerCurt,
    "debugger_v2_full_health": DebuggerFull,
    "tensorboard_histograms": Histograms,
    "norm_scalars": NormScalars,
}


class Seat:
    """A training in the thread where its settings hold: op callbacks belong to the thread that installed them."""

    def __init__(self, name: str, setting: Setting, thread: ThreadPoolExecutor | None) -> None:
        self._thread = thread
        self.training = self._do(lambda: KINDS[name](setting))

    def steps(self, count: int) -> None:
        """See Plain."""
        self._do(lambda: self.training.steps(count))

    def epoch_end(self) -> None:
        """See Plain."""
        self._do(self.training.epoch_end)

    def close(self) -> None:
        """See Plain."""
        self._do(self.training.close)

    def _do(self, work: Callable[[], Any]) -> Any:
        return work() if self._thread is None else self._thread.submit(work).result()


@contextlib.contextmanager
def seated(name: str, setting: Setting) -> Iterator[Seat]:
    """A warm training."""
    if not KINDS[name].own_thread:
        yield Seat(name, setting, None)
        return
    with ThreadPoolExecutor(1) as thread:
        yield Seat(name, setting, thread)
