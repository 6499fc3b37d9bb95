"""The entry points for TensorFlow 1: `NanWatchHook` for a MonitoredSession, `watch_session` for a plain Session."""

from __future__ import annotations

import os
import weakref
from dataclasses import replace
from typing import Any, Final

import tensorflow as tf

from tb_nanwatch.errors import UsageError
from tb_nanwatch.record import off
from tb_nanwatch.record import options as options_module
from tb_nanwatch.record.graph.recorder import GraphWatcher, Pending
from tb_nanwatch.record.graph.watched import WatchedGraph, compiles
from tb_nanwatch.record.guard import Guard
from tb_nanwatch.record.options import Options

_REPLACED: Final = ("run", "make_callable", "partial_run_setup", "close")  # of a watched session
_watches: weakref.WeakKeyDictionary[Any, weakref.ref[_SessionWatch]] = weakref.WeakKeyDictionary()


def watch_session(
    sess: Any, logdir: str | os.PathLike[str], loss: Any = None, grads_and_vars: Any = None, **options: Any
) -> Any:
    """Watch a plain tf.compat.v1.Session. Call it when the graph is complete, train op included.

    The session itself comes back, so that `sess.run`, `op.run()` and `tensor.eval()` are all watched, and everything
    that takes a Session takes it. A run counts as a training step if it trains a variable; all others are left alone.
    `sess.close()` ends the recording, and so do the end of the program and watching the session again.

    Args:
        sess: the session.
        logdir: folder of this run.
        loss: the loss, or several in a list or dict; without it, the graph's collection of losses.
        grads_and_vars: as of `optimizer.compute_gradients`; without it, what enters the optimizer's kernels.
        **options: see `tb_nanwatch.record.options.Options`. on_nonfinite="stop" equals "raise" here.

    Raises:
        UsageError: no plain session, nothing in its graph that trains, a loss of another graph, an option that is not
            allowed, or a logdir that cannot be written.
        NonFiniteError: out of `sess.run`, with on_nonfinite="raise".
    """
    checked = _parse(options)
    if checked.on_nonfinite == "stop":  # a loop that is not ours can only be stopped by an exception
        checked = replace(checked, on_nonfinite="raise")
    if isinstance(sess, tf.compat.v1.train.MonitoredSession):
        raise UsageError(
            "watch_session takes a plain Session; "
            f"give a MonitoredSession hooks=[NanWatchHook({os.fspath(logdir)!r}, loss=loss)]"
        )
    if not all(hasattr(sess, name) for name in ("run", "close", "graph")):
        raise UsageError(f"watch_session takes a tf.compat.v1.Session, not {type(sess).__name__}")
    if off.left_off(logdir):
        return sess
    earlier = _watches.get(sess, lambda: None)()
    if earlier is not None:  # a notebook cell that ran twice
        earlier.end()
    graph = WatchedGraph(sess.graph, checked, loss, grads_and_vars, compiles(sess))
    _watches[sess] = weakref.ref(_SessionWatch(sess, GraphWatcher(logdir, checked, "watch_session", graph, sess)))
    return sess


class _SessionWatch:
    """Stands in for `run` and `close` of one session, until it is closed. Nobody but the session holds it."""

    def __init__(self, sess: Any, watcher: GraphWatcher) -> None:
        self.watcher = watcher
        self._sess = sess
        self._replaced = {name: getattr(sess, name) for name in _REPLACED if hasattr(sess, name)}
        for name in self._replaced:
            setattr(sess, name, getattr(self, name))

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        """`Session.run`, watched."""
        pending = self.watcher.before(fetches, feed_dict)
        if pending is None:
            return self._replaced["run"](fetches, feed_dict, options, run_metadata)
        both = {**(feed_dict or {}), **pending.feed_dict}
        try:
            result, ours = self._replaced["run"]([fetches, pending.fetches], both, options, run_metadata)
        except BaseException as error:
            pending.recorder.failed(error)
            raise
        pending.after(ours)
        return result

    def make_callable(self, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Any:
        """`Session.make_callable`; what it gives is watched if it trains."""
        plain = self._replaced["make_callable"](fetches, feed_list, accept_options)
        if feed_list is not None:
            return plain  # which comes back through `run`

        def watched(**options: Any) -> Any:
            return self.run(fetches, **options) if self.watcher.trains(fetches, ()) else plain(**options)

        return watched

    def partial_run_setup(self, fetches: Any, feeds: Any = None) -> Any:
        """`Session.partial_run_setup`, which cannot be watched."""
        if self.watcher.trains(fetches, feeds or ()):
            self.watcher.cannot_watch("partial_run", "a step that runs in parts is not recorded: train with sess.run")
        return self._replaced["partial_run_setup"](fetches, feeds)

    def close(self) -> None:
        """`Session.close`, and the end of the recording."""
        self.end()
        self._replaced["close"]()

    def end(self) -> None:
        """End the recording and leave the session as it was."""
        self.watcher.close()
        for name in self._replaced:
            if getattr(vars(self._sess).get(name), "__self__", None) is self:
                delattr(self._sess, name)


class NanWatchHook(tf.compat.v1.train.SessionRunHook):
    """Watches a MonitoredSession: `MonitoredTrainingSession(hooks=[NanWatchHook("logs/run1", loss=loss)])`.

    A run counts as a training step if it trains a variable; all others are left alone.

    Args:
        logdir: folder of this run.
        loss: the loss, or several in a list or dict; without it, the graph's collection of losses.
        grads_and_vars: as of `optimizer.compute_gradients`; without it, what enters the optimizer's kernels.
        **options: see `tb_nanwatch.record.options.Options`. on_nonfinite="stop" makes `should_stop()` true.

    Raises:
        UsageError: an option that is not allowed; when the session is made, a graph in which nothing trains, a loss of
            another graph, or a logdir that cannot be written.
        NonFiniteError: out of `sess.run`, with on_nonfinite="raise".
    """

    def __init__(
        self, logdir: str | os.PathLike[str], loss: Any = None, grads_and_vars: Any = None, **options: Any
    ) -> None:
        self._logdir = os.fspath(logdir)
        self._options = _parse(options)
        self._given = (loss, grads_and_vars)
        self._graph: WatchedGraph | None = None
        self._watcher: GraphWatcher | None = None
        self._pending: Pending | None = None

    def begin(self) -> None:
        """Add the gauges; afterwards the session finalizes the graph."""
        if off.left_off(self._logdir):
            return
        graph = tf.compat.v1.get_default_graph()
        self._graph = WatchedGraph(graph, self._options, *self._given, compiles(None))

    def after_create_session(self, session: Any, coord: Any) -> None:  # noqa: ARG002  # named by TensorFlow
        """Begin an attempt: the first one, or one from a checkpoint after the session was lost."""
        self.close()
        if self._graph is not None:  # else it is left off
            self._watcher = GraphWatcher(self._logdir, self._options, "hook", self._graph, session)
            with Guard().contained("listening to a session"):
                self._overhear(session)

    def before_run(self, run_context: Any) -> Any:
        """Fetch the gauges with a training step."""
        self._pending = None
        if self._watcher is not None:
            arguments = run_context.original_args
            self._pending = self._watcher.before(arguments.fetches, arguments.feed_dict)
        if self._pending is None:
            return None
        return tf.compat.v1.train.SessionRunArgs(self._pending.fetches, self._pending.feed_dict)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Read the step."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.after(run_values.results)
            if pending.recorder.stop_requested:
                run_context.request_stop()

    def end(self, session: Any) -> None:  # noqa: ARG002  # named by TensorFlow
        """End the recording."""
        self.close()

    def close(self) -> None:
        """End the recording. Called by itself when the session or the process ends."""
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None

    def _overhear(self, session: Any) -> None:
        """Learn what a run of the session raises, since no hook is told: neither `after_run` nor `end` follows."""
        run, here = session.run, weakref.ref(self)

        def overheard(*args: Any, **kwargs: Any) -> Any:
            try:
                return run(*args, **kwargs)
            except BaseException as error:
                hook = here()
                if hook is not None and hook._pending is not None:
                    pending, hook._pending = hook._pending, None
                    pending.recorder.failed(error)
                raise

        session.run = overheard


def _parse(options: dict[str, Any]) -> Options:
    checked = options_module.parse(options)
    if checked.on_nonfinite == "skip":
        raise UsageError(
            'on_nonfinite="skip" is not available for TF1 graphs, whose updates are built already: '
            'use "record", "stop" or "raise"'
        )
    return checked
