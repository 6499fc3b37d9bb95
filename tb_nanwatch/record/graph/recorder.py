"""Records the runs of a session that are training steps, from the first one on."""

from __future__ import annotations

import contextlib
import functools
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tb_nanwatch.errors import UsageError
from tb_nanwatch.format.records import Incident
from tb_nanwatch.record.applied.remedy import GraphLoop
from tb_nanwatch.record.applied.trial import Trying, under_trial
from tb_nanwatch.record.device import Plan
from tb_nanwatch.record.fold import Parts
from tb_nanwatch.record.graph import names, replay
from tb_nanwatch.record.graph.memory import Fed, Memory
from tb_nanwatch.record.graph.probe import GraphProbe, GraphWeights, Reads
from tb_nanwatch.record.graph.watched import Layout, WatchedGraph, arrays_of, feeds_of, is_array
from tb_nanwatch.record.guard import Guard
from tb_nanwatch.record.naming import Names
from tb_nanwatch.record.options import Options
from tb_nanwatch.record.recording import Recording
from tb_nanwatch.record.replay.capsule import Capsules

MOST_REPLAYED: Final = 3  # incidents of a run
UNKNOWN: Final = "an error: the step began and did not end, and nobody told the recorder why"

Feeds = Mapping[str, tuple[Any, Any]]  # tensor name to tensor and value


class GraphRecorder(Recording):
    """The recording of one session, which it does not hold on to: `reads` comes with every call."""

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        options: Options,
        entry_point: str,
        graph: WatchedGraph,
        reads: Reads,
        trying: Trying | None = None,
    ) -> None:
        self._graph = graph
        self._read = GraphWeights([number for number, v in enumerate(graph.weights) if v.trainable])
        with self._reading(reads):
            squares, iterations = _now(self._read)
            counts = np.zeros((len(squares), 3))
            if not np.isfinite(squares).all():
                counts = _counts(self._read.exact_statistics())
        super().__init__(logdir, options, entry_point, graph.weights, iterations, trying=trying)
        self._probe = GraphProbe(self._read, options.every)
        self._plans: dict[Layout, Plan] = {}
        self.memory: Memory | None = None
        self._replayed = 0
        self._capsules = Capsules(Path(logdir), entry_point, Names(), options.disk_megabytes << 20)
        self._tensors.layer_order.update({layer: number for number, layer in enumerate(graph.layers)})
        self._under_way = False
        self._start(self._probe, {v.name: c[0] > 0 for v, c in zip(graph.weights, counts, strict=True) if c.any()})
        if options.replay:
            self.memory = Memory(options.replay_megabytes << 20, self._too_large)
        if not graph.gauges.losses:
            self._say("no_loss", "no loss is recorded: pass loss=, or add it to the graph's collection of losses")

    def unwatched(self, text: str) -> None:
        """Note, and say, that something is not recorded."""
        with self._lock, self.guard.contained("saying what is not recorded"):
            self._say("unwatched", text)

    def before(self, reads: Reads, fetches: Any, feeds: Feeds) -> int:
        """Take note of a step that is about to run; the mode in which it shall be read."""
        with self._lock, self.guard.contained("keeping what was fed"):
            if not self._first_batches.done:
                self._look_at(self.first_step + self._probe.calls, _fed(feeds))
            if self.memory is not None:
                values = {name: _kept(t, value) for name, (t, value) in feeds.items()}
                self.memory.before(Fed(self.first_step + self._probe.calls, fetches, values), reads.state)
        self._under_way = True
        return self._probe.mode()

    def after(self, reads: Reads, layout: Layout, mode: int, results: Any, feeds: Feeds) -> None:
        """Read the step that has just run. Raises NonFiniteError if the user asked for it."""
        before, self._under_way = self._incidents.bad_steps, False
        with self._lock, self.guard.contained("reading a step"), self._reading(reads):
            self._take([self._probe.arrive(self._plan(layout), mode, results, arrays_of(layout, feeds))])
        self._act(before)

    def failed(self, error: BaseException) -> None:
        """A step raised: note what, so that a run which ends by it can say why. An interrupt is no failure."""
        self._under_way = False
        super().failed(error)

    def close(self) -> None:
        """Write what is left and end. A step that began and never ended was the end of the run: another hook raised."""
        if self._under_way and not self.idle:
            self._under_way = False
            with self._lock, self.guard.contained("noting that a step did not end"):
                self._rows.flush()
                self.note("raised", UNKNOWN)
        super().close()

    @contextlib.contextmanager
    def _reading(self, reads: Reads) -> Iterator[None]:
        self._read.reads = reads
        try:
            yield
        finally:
            self._read.reads = None

    def _steps_to_replay(self, incident: Incident) -> int:
        memory = self._memory_to_replay()
        return 0 if memory is None else len(memory.until(incident.first_step))

    def _memory_to_replay(self) -> Memory | None:
        """The steps that may be run again; None where that is off, or was done often enough."""
        return None if self.memory is None or self.memory.off or self._replayed >= MOST_REPLAYED else self.memory

    def _investigate(self, incident: Incident) -> Incident | None:
        """Replay the incident in a session of its own; what it finds replaces the incident's origin."""
        memory = self._memory_to_replay()
        if memory is None:
            return None
        self._replayed += 1
        outcome = replay.investigate(
            self._graph.graph,
            memory,
            incident.first_step,
            incident.origin,
            [loss.source for loss in self._graph.gauges.losses],
            [s.tensor for pack in self._graph.gauges.packs for s in pack.members if s.kind == "gradient"],
            self._graph.layers,
            self.options.trial_seconds,
        )
        folder = ""
        if outcome.fed is not None:
            with self.guard.contained("writing a capsule"):
                folder = self._keep(incident, outcome, outcome.fed.feeds)
        return self._incidents.improve(incident.id, outcome.origin, outcome.as_json(), folder)

    def _keep(self, incident: Incident, outcome: replay.Replayed, feeds: Mapping[str, Any]) -> str:
        try:
            weights = {v.variable.name.removesuffix(":0") for v in self._graph.weights}
            return self._capsules.write_graph(incident, outcome, feeds, outcome.variables, weights)
        except OSError as error:  # what else is recorded may still fit
            self._say("no_capsule", f"the capsule of step {incident.first_step:,} cannot be written: {error}")
            return ""

    def _plan(self, layout: Layout) -> Plan:
        if layout not in self._plans:
            ids = [
                self._tensors.register("input", t.name.removesuffix(":0"), "", "", t.dtype.name, None, number).id
                for number, t in enumerate(layout.fed)
            ]
            ids += [
                self._tensors.register(
                    s.kind, s.name, s.layer, "", s.tensor.dtype.name, s.shape, number, activation=names.activation(s)
                ).id
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
    fetches: list[Any]
    feed_dict: dict[Any, Any]
    after: Callable[[Any], None]  # takes what was fetched


class GraphWatcher:
    """What both entry points do around the runs of a session. The recording begins with the first training step."""

    def __init__(
        self, logdir: str | os.PathLike[str], options: Options, entry_point: str, graph: WatchedGraph, session: Any
    ) -> None:
        try:
            Path(logdir).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"the logdir {os.fspath(logdir)!r} cannot be written: {error.strerror or error}"
            ) from error
        self._given = (logdir, options, entry_point, graph)
        self._loop: GraphLoop | None = None  # while a remedy is tried
        self._graph = graph
        self._reads = Reads(session, graph.gauges)
        self._guard = Guard()
        self._said: set[str] = set()
        self._end: weakref.finalize[Any, Any] | None = None
        self.recorder: GraphRecorder | None = None

    def before(self, fetches: Any, feed_dict: Any) -> Pending | None:
        """What to do about a run that is about to happen; None where it is to be left alone."""
        if not self._guard.alive or (self.recorder is not None and self.recorder.idle):
            return None
        try:
            feeds = feeds_of(self._graph.graph, feed_dict)
            layout = self._graph.layout(fetches, feeds)
        except Exception:  # invalid fetches or feeds: the session shall say so itself
            return None
        recorder = None if layout is None else self.recorder or self._begin()
        if layout is None or recorder is None:
            return None
        extra = self._treated(recorder, feeds)
        feeds = {**feeds, **{t.name: (t, value) for t, value in extra.items() if t.name in feeds}}
        mode = recorder.before(self._reads, fetches, feeds)
        after = functools.partial(recorder.after, self._reads, layout, mode, feeds=feeds)
        return Pending(recorder, layout.fetches(), {self._graph.gauges.mode: mode, **extra}, after)

    def trains(self, fetches: Any, feeds: Iterable[Any]) -> bool:
        """Whether a run that fetches and feeds these tensors would be watched."""
        if not self._guard.alive or (self.recorder is not None and self.recorder.idle):
            return False
        layout = None
        with self._guard.contained("looking at what a session shall run"):
            tensors = [self._graph.graph.as_graph_element(f, allow_operation=False) for f in feeds]
            layout = self._graph.layout(fetches, {t.name: (t, 0.0) for t in tensors})
        return layout is not None

    def cannot_watch(self, what: str, why: str) -> None:
        """Say once why some training steps are not recorded."""
        recorder = self.recorder or self._begin()
        if recorder is not None and what not in self._said:
            self._said.add(what)
            recorder.unwatched(f"{what}: {why}")

    def close(self) -> None:
        """End the recording."""
        if self._end is not None:
            self._end()
        self._guard.alive = False

    def _treated(self, recorder: GraphRecorder, feeds: Feeds) -> dict[Any, Any]:
        """What a remedy that is tried feeds in addition. Raises TrialEnded if there shall be no further step."""
        if recorder.trying is None or self._loop is None:
            return {}
        extra: dict[Any, Any] = recorder.trying.feeds(self._loop, feeds)
        recorder.trying.before_step()
        return extra

    def _begin(self) -> GraphRecorder | None:
        with self._guard.contained("beginning to watch a session"):
            logdir, options, entry_point, graph = self._given
            where, options, trying = under_trial(logdir, options)
            if trying is not None:
                self._loop = graph.loop(self._reads.run, may_feed_again=entry_point != "hook")
                trying.begin_graph(self._loop)
            self.recorder = GraphRecorder(where, options, entry_point, graph, self._reads, trying)
            self._end = weakref.finalize(self, self.recorder.close)  # also when the process ends
        return self.recorder


def _kept(tensor: Any, value: Any) -> Any:
    """Numbers in lists as the array that the session makes of them: else each would be a thing of its own."""
    dtype = tensor.dtype.base_dtype
    if isinstance(value, list | tuple) and (dtype.is_floating or dtype.is_integer or dtype.is_bool):
        with contextlib.suppress(ValueError, TypeError):  # the session shall say so itself
            return np.asarray(value, dtype.as_numpy_dtype)
    return value


def _fed(feeds: Feeds) -> list[tuple[str, Any]]:
    """(name, array) of what is fed as arrays."""
    dense = [(name, t, value) for name, (t, value) in feeds.items() if is_array(value)]
    return [(name.removesuffix(":0"), np.asarray(value, t.dtype.as_numpy_dtype)) for name, t, value in dense]


def _now(weights: GraphWeights) -> tuple[Any, int]:
    """Squares and global step before the first step; none where a variable is not initialized yet."""
    try:
        now = weights.read(values=True)
        weights.remember()  # from which the update of the first step is measured
        return now
    except tf.errors.FailedPreconditionError:
        return np.zeros(0), -1


def _counts(statistics: Any) -> Any:
    from tb_nanwatch.stats.measures import NAN, NEG_INF, POS_INF

    return statistics[:, [NAN, POS_INF, NEG_INF]]
