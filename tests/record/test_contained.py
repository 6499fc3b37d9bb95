"""Failures of the watcher itself: training goes on as if it were not there, with one warning and a note in the file."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from recorded import batches, data, descending, mean_squared, mlp, only_run

import tb_nanwatch as nanwatch
from tb_nanwatch.record import (
    collect,
    device,
    fusion,
    hooks,
    kernels,
    naming,
    policy,
    probe,
    recorder,
    rows,
    segments,
    writer,
)
from tb_nanwatch.record.guard import Guard
from tb_nanwatch.record.replay import rewind
from tb_nanwatch.store.catalog import Catalog


@pytest.fixture(autouse=True)
def _contain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TB_NANWATCH_STRICT", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()  # watchers of tests before may speak up when they go


def fails(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("made to fail")


def train(logdir: Path | None, **how: Any) -> tuple[list[Any], list[str], Any]:
    """Weights after two epochs, warnings of ours, and the model."""
    model = mlp(**how)
    x, y = data()
    watchers = [] if logdir is None else [nanwatch.NanWatch(logdir)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=watchers)
        for watcher in watchers:
            watcher.close()
    ours = [
        str(w.message) for w in caught if issubclass(w.category, RuntimeWarning) and "tb_nanwatch" in str(w.message)
    ]
    return model.get_weights(), ours, model


def check_unharmed(got: list[Any], **how: Any) -> None:
    alone, _, _ = train(None, **how)
    for a, b in zip(alone, got, strict=True):
        assert np.array_equal(a, b)


EVERYWHERE = [
    (collect.Collector, "inputs"),
    (collect.Collector, "activation"),
    (collect.Collector, "gradients"),
    (collect.Collector, "applied"),
    (collect.Collector, "readable"),
    (device.DeviceSide, "__init__"),
    (device.DeviceSide, "plan"),
    (device.DeviceSide, "write"),
    (hooks, "_install"),
    (hooks, "_hook"),
    (kernels, "measurable"),
    (kernels, "sum_of_squares"),
    (naming.Names, "add_model"),
    (naming.Names, "layer"),
    (naming.Names, "variable"),
    (probe.Probe, "__init__"),
    (probe.Probe, "launch"),
    (probe.Probe, "arrive"),
    (recorder.Recorder, "_finish"),
    (rewind.Rewind, "before"),
    (rows.StepRows, "add"),
    (rows.StepRows, "flush"),
    (writer.RunWriter, "declare"),
    (writer.RunWriter, "rows"),
    (writer.RunWriter, "close"),
    (writer.RunWriter, "_take"),
    (segments.Segments, "append"),
]


@pytest.mark.parametrize("eagerly", [False, True], ids=["uncompiled", "eager"])
@pytest.mark.parametrize(("owner", "name"), EVERYWHERE, ids=lambda value: getattr(value, "__name__", value))
def test_a_failure_anywhere_is_contained(
    owner: Any, name: str, eagerly: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fails)
        got, said, model = train(tmp_path, run_eagerly=eagerly)
    assert len(said) == 1
    assert "made to fail" in said[0]
    assert "Training goes on unwatched" in said[0]
    check_unharmed(got, run_eagerly=eagerly)
    assert "train_step" not in model.__dict__
    if owner is segments.Segments or name in ("__init__", "add_model", "_take", "close"):
        return  # nothing can be written
    assert [note.kind for note in only_run(tmp_path).notes] == ["disabled"]


@pytest.mark.parametrize("owner", [fusion, policy], ids=lambda module: module.__name__.rpartition(".")[2])
def test_the_failure_of_a_part_not_used_is_not_noticed(
    owner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        owner, {"fusion": "readable", "policy": "apply_if_finite"}[owner.__name__.rpartition(".")[2]], fails
    )
    _, said, _ = train(tmp_path, run_eagerly=True)
    assert said == []


@pytest.mark.parametrize("style", ["eager", "function"])
def test_a_custom_loop_goes_on(style: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows.StepRows, "add", fails)

    def trained(watched: bool) -> list[Any]:
        model = mlp(optimizer=keras.optimizers.SGD(0.1))

        step = descending(model)
        run = tf.function(step) if style == "function" else step
        run = nanwatch.watch(run, tmp_path, model=model, optimizer=model.optimizer) if watched else run
        for x, y in batches(*data()):
            assert np.isfinite(run(tf.constant(x), tf.constant(y)))
        if watched:
            run.close()
        return list(model.get_weights())

    with pytest.warns(RuntimeWarning, match="made to fail") as caught:
        got = trained(True)
    assert len(caught) == 1
    for a, b in zip(trained(False), got, strict=True):
        assert np.array_equal(a, b)


# ---------------------------------------------------------------- the disk


class DiskTrouble(keras.callbacks.Callback):
    """Lets something happen to the disk behind the third batch."""

    def __init__(self, happen: Callable[[], None]) -> None:
        super().__init__()
        self.happen = happen

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 3:
            self.happen()
            self.happen = lambda: None


def trouble(tmp_path: Path, happen: Callable[[], None]) -> tuple[list[Any], list[str]]:
    model = mlp()
    x, y = data()
    watcher = nanwatch.NanWatch(tmp_path / "run")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=[watcher, DiskTrouble(happen)])
        watcher.close()
    return model.get_weights(), [str(w.message) for w in caught if "tb_nanwatch" in str(w.message)]


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    got, said = trouble(tmp_path, lambda: monkeypatch.setattr(segments.os, "write", full))
    monkeypatch.undo()
    assert len(said) == 1
    assert "No space left on device" in said[0]
    check_unharmed(got)


def test_a_disk_that_takes_half_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def half(file: int, record: Any) -> int:
        if len(record) > 20:
            return write(file, bytes(record[: len(record) // 2]))
        raise OSError(errno.ENOSPC, "No space left on device")

    _, said = trouble(tmp_path, lambda: monkeypatch.setattr(segments.os, "write", half))
    monkeypatch.undo()
    assert len(said) == 1
    catalog = Catalog(tmp_path / "run")
    catalog.refresh()  # readers survive the torn record


def test_a_folder_that_is_removed(tmp_path: Path) -> None:
    got, said = trouble(tmp_path, lambda: shutil.rmtree(tmp_path / "run"))
    assert len(said) == 1
    assert "was removed" in said[0]
    check_unharmed(got)


def test_a_file_that_is_closed_under_the_writer(tmp_path: Path) -> None:
    def close_ours() -> None:
        for link in Path("/proc/self/fd").iterdir():
            if link.is_symlink() and str(link.resolve()).startswith(str(tmp_path)):
                null = os.open(os.devnull, os.O_RDONLY)
                os.dup2(null, int(link.name))
                os.close(null)

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    got, said = trouble(tmp_path, close_ours)
    assert len(said) == 1
    check_unharmed(got)


def test_the_next_fit_watches_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, watcher = mlp(), nanwatch.NanWatch(tmp_path)
    x, y = data()
    with monkeypatch.context() as patch:
        patch.setattr(rows.StepRows, "add", fails)
        with pytest.warns(RuntimeWarning, match="made to fail"):
            model.fit(x, y, batch_size=8, verbose=0, callbacks=[watcher])
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[watcher])
    watcher.close()
    assert only_run(tmp_path).steps == 8


# ---------------------------------------------------------------- the guard itself


def test_the_guard_says_it_once_and_lets_interrupts_pass() -> None:
    reasons: list[str] = []
    guard = Guard(reasons.append)
    with pytest.raises(KeyboardInterrupt), guard.contained("waiting"):
        raise KeyboardInterrupt
    with pytest.raises(nanwatch.UsageError), guard.contained("checking"):
        raise nanwatch.UsageError("the user's")
    assert guard.alive

    def count() -> None:
        with guard.contained("counting"):
            _ = 1 / 0

    with pytest.warns(RuntimeWarning, match="failed while counting: ZeroDivisionError: division by zero"):
        count()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        count()
    assert not guard.alive
    assert reasons == ["failed while counting: ZeroDivisionError: division by zero"]


def test_warnings_that_are_errors_do_not_reach_the_training(capsys: pytest.CaptureFixture[str]) -> None:
    guard = Guard()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guard.disable("had enough")
    assert "tb_nanwatch had enough. Training goes on unwatched" in capsys.readouterr().err


def test_a_failing_goodbye_is_held_back() -> None:
    guard = Guard(fails)
    with pytest.warns(RuntimeWarning):
        guard.disable("had enough")


def test_strict_mode_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TB_NANWATCH_STRICT", "1")
    with pytest.raises(ZeroDivisionError), Guard().contained("counting"):
        _ = 1 / 0


# ---------------------------------------------------------------- forks and threads

FORK = """
import os, signal, sys
import tensorflow as tf
import tb_nanwatch

v = tf.Variable(tf.ones([3]), name="v")

def train(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((v * x) ** 2)
    v.assign_sub(0.01 * tape.gradient(loss, v))
    return loss

step = tb_nanwatch.watch(train, sys.argv[1], variables=[v])
for _ in range(3):
    step(tf.ones([3]))
child = os.fork()
if child == 0:
    signal.alarm(60)
    for _ in range(5):
        loss = step(tf.ones([3]) * float("nan"))
    step.close()
    sys.exit(7)  # runs what is registered for the end
_, status = os.waitpid(child, 0)
for _ in range(3):
    step(tf.ones([3]))
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_trains_and_writes_nothing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FORK, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    run = only_run(tmp_path)
    assert (run.steps, run.ended, len(run.attempts)) == (6, True, 1)
    assert run.incidents == ()
    assert len(list(tmp_path.glob("*.nanwatch"))) == 1


def test_steps_from_several_threads(tmp_path: Path) -> None:
    v = tf.Variable(tf.ones([3]), name="v")

    @tf.function
    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((v * x) ** 2)
        v.assign_sub(0.0 * tape.gradient(loss, v))
        return loss

    errors: list[BaseException] = []

    def many() -> None:
        try:
            for _ in range(25):
                step(tf.ones([3]))
        except BaseException as error:
            errors.append(error)

    with nanwatch.watch(train, tmp_path, variables=[v]) as step:
        threads = [threading.Thread(target=many) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    run = only_run(tmp_path)  # without damage; a step that another one overtook may be missing
    assert run.last_step == 74
    assert run.steps > 25


def test_watchers_side_by_side(tmp_path: Path) -> None:
    x, y = data(8)
    models = [mlp(seed) for seed in (1, 2)]
    steps = []
    for number, model in enumerate(models):

        def train(x: Any, y: Any, model: Any = model) -> Any:
            with tf.GradientTape() as tape:
                loss = mean_squared(y, model(x, training=True))
            model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            return loss

        steps.append(nanwatch.watch(tf.function(train), tmp_path / str(number), model=model, optimizer=model.optimizer))
    for _ in range(5):
        for step in steps:
            step(tf.constant(x), tf.constant(y))
    for number, step in enumerate(steps):
        step.close()
        run = only_run(tmp_path / str(number))
        assert run.steps == 5
        assert len(run.kind("gradient")) == 6


def test_hooks_are_gone_afterwards(tmp_path: Path) -> None:
    before = tf.GradientTape.gradient, keras.Layer.__call__, keras.optimizers.Optimizer.apply
    train(tmp_path)
    train(tmp_path, run_eagerly=True)
    assert before == (tf.GradientTape.gradient, keras.Layer.__call__, keras.optimizers.Optimizer.apply)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # some land in a __del__
def test_interrupts_at_any_moment_reach_the_user(tmp_path: Path) -> None:
    """SIGINT lands wherever it lands: in the step, in the watcher, between. Hooks are gone, the model is usable.

    Only TensorFlow's calls are spared: interrupted there, it aborts now and then or breaks its caches, watched or not.
    """
    before = tf.GradientTape.gradient
    x, y = data()
    model = mlp()
    watcher = nanwatch.NanWatch(tmp_path)
    model.fit(
        x, y, batch_size=8, verbose=0, callbacks=[watcher]
    )  # TensorFlow does not survive interrupts while it traces

    armed = False
    of_tensorflow = str(Path(tf.__file__).parent)

    def interrupt(_: int, frame: Any) -> None:
        files = [inside.f_code.co_filename for inside, _ in traceback.walk_stack(frame)]
        if armed and not any(file.startswith(of_tensorflow) for file in files):
            raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    try:
        for n in range(20):
            signal.setitimer(signal.ITIMER_REAL, 0.01 + 0.0037 * n, 0.0031)  # and again, should it land in a __del__
            try:
                armed = True
                model.fit(x, y, batch_size=8, epochs=10_000, verbose=0, callbacks=[watcher])
            except KeyboardInterrupt:
                armed = False
                interrupted += 1
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert interrupted == 20
    model.fit(x, y, batch_size=8, verbose=0)
    assert tf.GradientTape.gradient is before
    assert "train_step" not in model.__dict__
