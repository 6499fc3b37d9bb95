"""Records the runs of a session that are training steps, from the first one on."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tb_nanwatch.errors import UsageError
from tb_nanwatch.record.device import Plan
from tb_nanwatch.record.fold import Parts
from tb_nanwatch.record.graph.memory import Fed, Memory
from tb_nanwatch.record.graph.probe import GraphProbe, GraphWeights
from tb_nanwatch.record.graph.watched import Layout, WatchedGraph, arrays_of, feeds_of
from tb_nanwatch.record.guard import Guard
from tb_nanwatch.record.options import Options
from tb_nanwatch.record.recording import Recording

Run = Callable[..., Any]  # as Session.run


class GraphRecorder(Recording):
    """The recording of one session. `run` runs it unwatched."""

    def __init__(
        self, logdir: str | os.PathLike[str], options: Options, entry_point: str, graph: WatchedGraph, run: Run
    ) -> None:
        trainable = [number for number, v in enumerate(graph.weights) if v.trainable]
        self._reader = GraphWeights(graph.gauges, trainable)
        self._graph = graph
        with self._reader.through(run):
            squares, iterations = _now(self._reader)
            finite = bool(np.isfinite(squares).all()) or not _counts(self._reader.exact_statistics()).any()
        super().__init__(logdir, options, entry_point, graph.weights, iterations)
        self._probe = GraphProbe(self._reader, options.every)
        self._plans: dict[Layout, Plan] = {}
        self.memory: Memory | None = None
        self._tensors.layer_order.update({layer: number for number, layer in enumerate(graph.layers)})
        self._start(self._probe, weights_bad=not finite)
        if options.replay:
            self.memory = Memory(self._read_state, options.replay_megabytes << 20, self._too_large)
        if not graph.gauges.losses:
            self._say("no_loss", "no loss is recorded: pass loss=, or add it to the graph's collection of losses")

    def before(self, run: Run, fetches: Any, feeds: Mapping[str, tuple[Any, Any]]) -> tuple[int, Mapping[Any, Any]]:
        """Take note of a step that is about to run; the mode in which it shall be read, and what to feed for that."""
        with self._lock, self.guard.contained("keeping what was fed"), self._reader.through(run):
            if self.memory is not None:
                values = {name: value for name, (_, value) in feeds.items()}
                self.memory.before(Fed(self.first_step + self._probe.calls, fetches, values))
        mode = self._probe.mode()
        return mode, {self._graph.gauges.mode: mode}

    def after(self, run: Run, layout: Layout, mode: int, results: Any, feeds: Mapping[str, tuple[Any, Any]]) -> None:
        """Read the step that has just run. Raises NonFiniteError if the user asked for it."""
        before = self._incidents.bad_steps
        with self._lock, self.guard.contained("reading a step"), self._reader.through(run):
            self._take([self._probe.arrive(self._plan(layout), mode, results, arrays_of(layout, feeds))])
        self._act(before)

    def _plan(self, layout: Layout) -> Plan:
        if layout not in self._plans:
            ids = [
                self._tensors.register("input", t.name.removesuffix(":0"), "", "", t.dtype.name, None, number).id
                for number, t in enumerate(layout.fed)
            ]
            ids += [
                self._tensors.register(s.kind, s.name, s.layer, "", s.tensor.dtype.name, s.shape, number).id
                for pack in layout.packs
                for number, s in enumerate(pack.members)
            ]
            losses = [
                self._tensors.register("loss", loss.name, "", "", loss.source.dtype.name, (), 0).id
                for loss in layout.losses
            ]
            self._weight_infos()
            self._declare()
            groups = (tuple(range(len(ids))),)
            self._plans[layout] = Plan(
                len(self._plans), Parts.of(ids), Parts.of(losses), groups, False, None, None, None
            )
        return self._plans[layout]

    def _read_state(self) -> Mapping[str, Any] | None:
        try:
            return self._reader.run(self._graph.gauges.state)
        except tf.errors.FailedPreconditionError:  # a variable that nobody has initialized yet
            return None

    def _too_large(self, size: int) -> None:
        self._say(
            "replay_off",
            f"the variables of this graph take {size >> 20:,} MB, more than replay_megabytes="
            f"{self.options.replay_megabytes:,}: incidents will be located by layer, not by op",
        )


@dataclass(frozen=True)
class Pending:
    """A training step under way: what to fetch and to feed beside the user's own."""

    recorder: GraphRecorder
    layout: Layout
    mode: int
    feeds: Mapping[str, tuple[Any, Any]]
    fetches: list[Any]
    feed_dict: Mapping[Any, Any]

    def after(self, run: Run, results: Any) -> None:
        """Hand in what was fetched."""
        self.recorder.after(run, self.layout, self.mode, results, self.feeds)


class GraphWatcher:
    """What both entry points do around a run. The recording begins with the first training step."""

    def __init__(self, logdir: str | os.PathLike[str], options: Options, entry_point: str, graph: WatchedGraph) -> None:
        try:
            Path(logdir).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"the logdir {os.fspath(logdir)!r} cannot be written: {error.strerror or error}"
            ) from error
        self._make: Callable[[Run], GraphRecorder] = lambda run: GraphRecorder(logdir, options, entry_point, graph, run)
        self._graph = graph
        self._guard = Guard()
        self._end: weakref.finalize[Any, Any] | None = None
        self.recorder: GraphRecorder | None = None

    def before(self, run: Run, fetches: Any, feed_dict: Any) -> Pending | None:
        """What to do about a run that is about to happen; None where it is to be left alone."""
        if not self._guard.alive or (self.recorder is not None and self.recorder.idle):
            return None
        try:
            feeds = feeds_of(self._graph.graph, feed_dict)
            layout = self._graph.layout(fetches, feeds)
        except Exception:  # invalid fetches or feeds: the session shall say so itself
            return None
        if layout is None:
            return None
        recorder = self.recorder or self._begin(run)
        if recorder is None:
            return None
        mode, feed_dict = recorder.before(run, fetches, feeds)
        return Pending(recorder, layout, mode, feeds, layout.fetches(), feed_dict)

    def close(self) -> None:
        """End the recording."""
        if self._end is not None:
            self._end()
        self._guard.alive = False

    def _begin(self, run: Run) -> GraphRecorder | None:
        with self._guard.contained("beginning to watch a session"):
            self.recorder = self._make(run)
            self._end = weakref.finalize(self, self.recorder.close)  # also when the process ends
        return self.recorder


def _now(weights: GraphWeights) -> tuple[Any, int]:
    """Squares and global step before the first step; none where a variable is not initialized yet."""
    try:
        return weights.read(values=False)
    except tf.errors.FailedPreconditionError:
        return np.zeros(0), -1


def _counts(statistics: Any) -> Any:
    from tb_nanwatch.stats.measures import NAN, NEG_INF, POS_INF

    return statistics[:, [NAN, POS_INF, NEG_INF]]
