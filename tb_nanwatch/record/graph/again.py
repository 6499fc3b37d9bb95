"""The step that a graph's capsule holds, run again with the graph that the user's function builds now.

Variables and feeds go in by their names; then every tensor behind the loss and the gradients is looked at. The update
itself is not run: it is an op of the program that may save, count or send.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tb_nanwatch.errors import CorruptData, NanWatchError, UsageError
from tb_nanwatch.format.capsule import Opened
from tb_nanwatch.format.records import Origin
from tb_nanwatch.record.graph import replay, trials, walk
from tb_nanwatch.record.graph.memory import Fed
from tb_nanwatch.record.replay import batch
from tb_nanwatch.record.replay.verdict import Verdict

ENTRY_POINTS = ("hook", "watch_session")


def run(opened: Opened, build: Callable[[], Any], target: str) -> Verdict:
    """Run the step with the loss and gradients that `build` adds to a new graph: (loss, grads_and_vars).

    Raises UsageError where it returns something else, NanWatchError where the graph has no tensor that was fed.
    """
    tf1 = tf.compat.v1
    with tf1.Graph().as_default() as graph:
        loss, gradients = _built(build(), target)
        feeds = _feeds(opened, graph)
        kept = _variables(opened)
        have = {name.removesuffix(":0"): v for name, v in trials.variables(graph).items()}
        fitting = {n: v for n, v in kept.items() if n in have and have[n].shape.is_compatible_with(v.shape)}
        with tf1.Session(graph=graph) as session:
            try:
                waiting = walk.waits(walk.executed([loss.op, *(g.op for g in gradients)], feeds))
                if waiting:
                    raise NanWatchError(f"the step cannot run: {waiting} waits for what a thread of the program brings")
                fed = Fed(opened.capsule.step, None, feeds)
                trials.load(session, graph, fitting)
                seen = replay.look(session, graph, session.run(trials.variables(graph)), fed, [loss], gradients)
                value = float(np.mean(session.run(loss, feeds)))
            except tf.errors.OpError as error:
                raise NanWatchError(f"the step cannot run: {trials.told(error)[:500]}") from error
        outcome = replay.told(seen, Origin("loss", precision="op"), ())
    missing, unset = tuple(n for n in kept if n not in fitting), tuple(n for n in have if n not in fitting)
    if outcome.origin is not None:
        return Verdict("nonfinite", value, origin=outcome.origin, put_in=len(fitting), missing=missing, unset=unset)
    bad = not np.isfinite(value) or any(any(seen.bad(g)) for g in gradients)
    why = "loss or gradients are not finite" if bad else ""
    return Verdict("nonfinite" if bad else "finite", value, "graph", None, why, len(fitting), missing, unset)


def _built(made: Any, target: str) -> tuple[Any, list[Any]]:
    pair = isinstance(made, tuple) and len(made) == 2
    if not pair or not tf.is_tensor(made[0]) or not isinstance(made[1], list | tuple):
        raise UsageError(f"for a graph, {target} has to return (loss, grads_and_vars), not {type(made).__name__}")
    gradients = [pair[0] for pair in made[1] if pair[0] is not None]
    return made[0], [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients]


def _feeds(opened: Opened, graph: Any) -> dict[str, Any]:
    fed = batch.together(opened.capsule.batch, None if opened.batch is None else opened.batch.read)  # type: ignore[arg-type]
    if not isinstance(fed, dict):
        raise CorruptData("the batch is not that of a graph")
    for name in fed:
        try:
            graph.get_tensor_by_name(name)
        except (KeyError, ValueError, TypeError) as error:
            raise NanWatchError(f"the graph has no tensor {name}, which was fed") from error
    return fed


def _variables(opened: Opened) -> dict[str, Any]:
    found = {}
    for about in opened.capsule.state:
        assert opened.state is not None
        try:
            bits = opened.state.read(about.array, about.dtype, about.shape)
            found[about.name] = batch.numpy_of(bits, about.dtype)
        except (TypeError, ValueError) as error:
            raise CorruptData(f"the variable {about.name} cannot be read: {str(error)[:200]}") from error
    return found
