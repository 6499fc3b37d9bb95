"""What the host reads of a run: the gauges that came with it, the feeds, and the variables afterwards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tb_nanwatch.record.device import ALL_GROUPS, CLOSE_LOOK, CLOSE_LOOKS, NOTHING, Plan
from tb_nanwatch.record.graph import gauges
from tb_nanwatch.record.graph.gauges import Gauges
from tb_nanwatch.record.probe import Reading
from tb_nanwatch.record.weights import distance
from tb_nanwatch.stats import measures


class Reads:
    """Reads the variables of one session, in runs of their own that nobody watches."""

    def __init__(self, session: Any, fetch: Gauges) -> None:
        step = [] if fetch.iterations is None else [fetch.iterations]
        self.run: Callable[..., Any] = session.run  # as it is before it is watched
        self._make = getattr(session, "make_callable", None)
        self._fetches = {
            "squares": [fetch.squares, *step],
            "values": [fetch.squares, *step, *fetch.weights],
            "state": list(fetch.state.values()),
        }
        self._names = list(fetch.state)
        self._steps = len(step)
        self._ready: dict[str, Callable[[], Any]] = {}

    def weights(self, values: bool) -> tuple[NDArray[np.float64], int, list[Any]]:
        """(sums of squares float64[w], global step or -1, the weights themselves if `values`)."""
        squares, *rest = self._read("values" if values else "squares")
        return np.asarray(squares), int(rest[0]) if self._steps else -1, rest[self._steps :]

    def state(self) -> dict[str, NDArray[Any]] | None:
        """Copies of all variables by name; None where one is not initialized yet."""
        try:
            return {name: np.array(value) for name, value in zip(self._names, self._read("state"), strict=True)}
        except tf.errors.FailedPreconditionError:
            return None

    def _read(self, what: str) -> Any:
        if what not in self._ready:  # a callable spares half the time of a run that reads little
            fetches = self._fetches[what]
            self._ready[what] = self._make(fetches) if self._make else functools.partial(self.run, fetches)
        return self._ready[what]()


class GraphWeights:
    """The weights of a graph as they were read last."""

    def __init__(self, trainable: Sequence[int]) -> None:
        self.reads: Reads | None = None  # of the session, while a step is being read
        self._trainable = list(trainable)
        self._before: list[NDArray[Any]] = []
        self._now: Sequence[Any] = ()

    def read(self, values: bool) -> tuple[NDArray[np.float64], int]:
        """(sums of squares float64[w], global step or -1). With `values`, the rest is answered from this reading."""
        assert self.reads is not None
        squares, step, self._now = self.reads.weights(values)
        return squares, step

    def squares(self) -> NDArray[np.float64]:
        """float64[w]."""
        return self.read(False)[0]

    def statistics(self, squares: Any) -> NDArray[np.float64]:
        """float64[w, COLUMNS] of what was read last; exact for those that are not finite."""
        rows = [
            measures.statistics(v, s) if np.isfinite(s) else measures.exact_statistics(v)
            for v, s in zip(self._now, squares, strict=True)
        ]
        return np.array(rows).reshape(-1, measures.COLUMNS)

    def exact_statistics(self) -> NDArray[np.float64]:
        """float64[w, COLUMNS], whatever the weights hold."""
        if not self._now:
            self.read(values=True)
        return np.array([measures.exact_statistics(v) for v in self._now]).reshape(-1, measures.COLUMNS)

    def remember(self) -> None:
        """Keep what was read last."""
        self._before = [np.array(self._now[n]) for n in self._trainable]

    def updates(self) -> NDArray[np.float64] | None:
        """float64[trainable] norms of the change since `remember`; None before its first call."""
        if not self._before:
            return None
        return np.array([distance(self._now[n], kept) for n, kept in zip(self._trainable, self._before, strict=True)])


class GraphProbe:
    """Makes Readings of runs."""

    def __init__(self, weights: GraphWeights, every: int) -> None:
        self.weights = weights
        self.calls = 0
        self._every = every
        self._streak = 0
        self._stats = np.zeros((0, measures.COLUMNS))

    def mode(self) -> int:
        """When the coming run shall take statistics."""
        if self.calls % self._every == 0:
            return gauges.ALWAYS
        return gauges.IN_TROUBLE if self._streak < CLOSE_LOOKS else gauges.NEVER

    def arrive(self, plan: Plan, mode: int, results: Any, arrays: Sequence[Any]) -> Reading:
        """The Reading of a run that has ended. `results` as of `Layout.fetches`; `arrays`: what was fed."""
        packs, losses, rates = results
        with np.errstate(all="ignore"):
            given = np.array([measures.sum_of_squares(a) for a in arrays])
        row = np.concatenate([given, *(row for row, _ in packs)])
        suspect = not np.isfinite(row).all()
        self._streak = self._streak + 1 if suspect else 0
        kind = NOTHING
        if len(row) and (mode == gauges.ALWAYS or (suspect and mode == gauges.IN_TROUBLE)):
            kind = CLOSE_LOOK if suspect else ALL_GROUPS
            self._stats = _looked(mode, arrays, given, packs)
        full, last = self.calls % self._every == 0, (self.calls + 1) % self._every == 0
        squares, step = self.weights.read(values=full or last)
        statistics = self.weights.statistics(squares) if full else None
        updates = self.weights.updates() if full else None
        if last:
            self.weights.remember()
        self.calls += 1
        return Reading(
            clock=self.calls - 1,
            iterations=step,
            plan=plan,
            row=np.concatenate([row, np.asarray(losses, np.float64)]),
            kind=kind,
            weights=squares,
            metrics_finite=True,
            learning_rate=float(rates[0]) if rates else float("nan"),
            loss_scale=float("nan"),
            weight_statistics=statistics,
            update_norms=updates,
        )

    def statistics(self, plan: Plan, clock: int) -> NDArray[np.float64]:  # noqa: ARG002  # asked for the newest only
        """float64[m, COLUMNS] of the newest step."""
        return self._stats


def _looked(mode: int, arrays: Sequence[Any], given: Any, packs: Any) -> NDArray[np.float64]:
    """float64[m, COLUMNS] from the feeds and the packs; exact for those that are not finite."""
    rows = [
        measures.statistics(a, s) if np.isfinite(s) else measures.exact_statistics(a)
        for a, s in zip(arrays, given, strict=True)
    ]
    looks = [np.array(rows).reshape(-1, measures.COLUMNS)]
    for row, look in packs:
        taken = mode == gauges.ALWAYS or not np.isfinite(row).all()
        looks.append(look if taken else _norms_only(row))
    return np.concatenate(looks)


def _norms_only(row: Any) -> NDArray[np.float64]:
    """Statistics of finite tensors of which nobody took more than the squares."""
    found = np.full((len(row), measures.COLUMNS), np.nan)
    found[:, measures.NORM] = np.sqrt(row)
    found[:, [measures.NAN, measures.POS_INF, measures.NEG_INF]] = 0
    return found
