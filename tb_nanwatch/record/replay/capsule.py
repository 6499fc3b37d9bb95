"""Writes the capsule of an incident: batch, state, random states, source text and findings, in a folder of its own.

It is written beside and renamed, so that a reader sees all of it or nothing. Capsules may take half of the run's disk;
what does not fit is left out, and the manifest says so. Nothing of the environment goes in.
"""

from __future__ import annotations

import linecache
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.format import arrays, metadata
from tb_nanwatch.format import capsule as layout
from tb_nanwatch.format.records import Incident
from tb_nanwatch.record import history
from tb_nanwatch.record.naming import Names, handle_of
from tb_nanwatch.record.replay.batch import Apart
from tb_nanwatch.record.replay.rerun import Outcome
from tb_nanwatch.record.replay.state import Handles, RandomState, State

SHARE: Final = 2  # capsules take up to 1/SHARE of the run's disk
Variables = list[tuple[layout.Kept, NDArray[Any]]]
CONTEXT: Final = 4  # lines on each side of the origin's; half as many for its callers


class Capsules:
    """Writes the capsules of one recorder below `logdir`. disk_bytes: what the whole run may take."""

    def __init__(self, logdir: Path, entry_point: str, names: Names, disk_bytes: int) -> None:
        self._logdir = logdir
        self._entry_point = entry_point
        self._names = names
        self._budget = disk_bytes // SHARE

    def write(self, incident: Incident, outcome: Outcome, handles: Handles, under_xla: bool, draws: bool) -> str:
        """The capsule's folder, relative to the logdir. Raises OSError where the disk refuses.

        `outcome` must know the failing call and the state before it.
        """
        assert outcome.failing is not None
        assert outcome.before is not None
        apart = Apart()
        batch = self._batch(apart, outcome.failing)
        variables, missing = _variables(outcome.before, handles, self._names)
        left_out = ["the state of random kernels that keep their own"] if draws else []
        random = _random(outcome.before.randomness)
        return self._put(incident, outcome, (batch, apart), variables, left_out + missing, random, under_xla)

    def write_graph(
        self,
        incident: Incident,
        outcome: Outcome,
        feeds: Mapping[str, Any],
        values: Mapping[str, Any],
        watched: Collection[str],
    ) -> str:
        """The same for a step of a graph: what it was fed, by tensor, and the variables before it, by name."""
        apart = Apart()
        batch = apart.part(dict(feeds))
        variables: Variables = []
        missing = ["random states, which lie in the session's kernels"]
        for number, (name, value) in enumerate(values.items()):
            array, plain = np.asarray(value), name.removesuffix(":0")
            try:
                bits = arrays.to_bits(array)
            except TypeError:
                missing.append(f"the variable {plain}, of {array.dtype.name}")
                continue
            variables.append((layout.Kept(plain, array.dtype.name, array.shape, f"v{number}", plain in watched), bits))
        variables.sort(key=lambda item: not item[0].watched)
        return self._put(incident, outcome, (batch, apart), variables, missing, {}, under_xla=False)

    def _put(
        self,
        incident: Incident,
        outcome: Outcome,
        batch_and_arrays: tuple[layout.Part, Apart],
        variables: Variables,
        left_out: list[str],
        random: dict[str, Any],
        under_xla: bool,
    ) -> str:
        root = self._logdir / metadata.CAPSULE_FOLDER
        root.mkdir(parents=True, exist_ok=True)
        room = self._budget - metadata.capsule_bytes(self._logdir)
        batch, apart = batch_and_arrays
        left_out = left_out + apart.left_out
        if apart.nbytes > room:
            left_out.append(f"the batch: its {_megabytes(apart.nbytes)} are more than capsules may take")
            batch, apart = layout.Part("left_out", value="batch too large"), Apart()
        kept, too_large = _fitting(variables, room - apart.nbytes)
        left_out += too_large

        capsule = layout.Capsule(
            step=incident.first_step,
            origin=incident.origin if outcome.origin is None else outcome.origin,
            batch=batch,
            wall_time=incident.wall_time,
            detected_step=incident.detected_step,
            last_finite_step=-1 if incident.last_finite_step is None else incident.last_finite_step,
            entry_point=self._entry_point,
            under_xla=under_xla,
            versions=history.versions(),
            replay=outcome.extra,
            source=tuple(_excerpts(outcome.extra.get("stack", ()))),
            state=tuple(about for about, _ in kept),
            state_bytes=sum(value.nbytes for _, value in kept),
            random=random,
            left_out=tuple(left_out),
        )
        beside = root / f".step_{incident.first_step}.{os.getpid()}"
        shutil.rmtree(beside, ignore_errors=True)
        try:
            beside.mkdir()
            if apart.arrays:
                arrays.write(beside / layout.BATCH, apart.arrays.items())
            if kept:
                arrays.write(beside / layout.STATE, ((about.array, value) for about, value in kept))
            (beside / layout.MANIFEST).write_text(layout.write(capsule), encoding="utf-8")
            name = _rename(beside, root, f"step_{incident.first_step}")
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        return f"{metadata.CAPSULE_FOLDER}/{name}"

    def _batch(self, apart: Apart, failing: Any) -> layout.Part:
        names = failing.names or ()
        if self._entry_point != "watch":
            return apart.part(failing.data, names[0] if names else "", names)
        positional, by_name = failing.data
        return layout.Part("tuple", items=(apart.part(positional, "", names), apart.part(by_name)))


def _rename(beside: Path, root: Path, name: str) -> str:
    """Give the finished folder its name; a later attempt of the run may have failed at the same step."""
    for number in range(1, 1000):
        numbered = name if number == 1 else f"{name}_{number}"
        if not (root / numbered).exists():
            beside.rename(root / numbered)
            return numbered
    raise FileExistsError(f"{root / name} and many like it exist")


def _variables(state: State, handles: Handles, names: Names) -> tuple[Variables, list[str]]:
    """Watched weights first; and what cannot be kept."""
    found: Variables = []
    missing: list[str] = []
    taken: set[str] = set()
    metrics = {id(handle_of(metric.variable)) for metric in names.metrics}
    for number, (handle, _, value) in enumerate(state.values):
        if handles.is_ours(handle) or handles.is_copy(handle):
            continue
        name, watched = label(handle, handles, names)
        metric = id(handle) in metrics
        base = name = name or f"variable {number}"
        while name in taken:
            name = f"{base} ({len(taken)})"
        taken.add(name)
        array = np.asarray(value)
        try:
            bits = arrays.to_bits(array)
        except TypeError:
            missing.append(f"the variable {name}, of {value.dtype.name}")
            continue
        about = layout.Kept(name, array.dtype.name, array.shape, f"v{number}", watched, metric)
        found.append((about, bits))
    return sorted(found, key=lambda item: not item[0].watched), missing


def label(handle: Any, handles: Handles, names: Names) -> tuple[str, bool]:
    """(name, whether it is a watched weight) by which a variable is found again in another process."""
    named = names.by_handle(handle)
    if named is not None:
        return named.name, True
    metric = next((m for m in names.metrics if handle_of(m.variable) is handle), None)
    return (handles.name(handle) if metric is None else metric.name), False


def _fitting(variables: Variables, room: int) -> tuple[Variables, list[str]]:
    """All variables, or the weights alone, or none: as many as there is room for."""
    weights = [(about, value) for about, value in variables if about.watched]
    total = _size(variables)
    if total <= room:
        return variables, []
    if _size(weights) <= room:
        rest = _megabytes(total - _size(weights))
        return weights, [
            f"the state beside the weights, as the optimizer's: its {rest} are more than capsules may take"
        ]
    return [], [f"the state: its {_megabytes(total)} are more than capsules may take"]


def _size(variables: Variables) -> int:
    return sum(value.nbytes for _, value in variables)


def _megabytes(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MB"


def _excerpts(stack: Iterable[dict[str, Any]]) -> Iterator[layout.Excerpt]:
    for number, frame in enumerate(stack):
        lines = linecache.getlines(frame["file"])
        context = CONTEXT if number == 0 else CONTEXT // 2
        first = max(1, frame["line"] - context)
        text = tuple(line.rstrip()[:500] for line in lines[first - 1 : frame["line"] + context])
        if text:
            yield layout.Excerpt(frame["file"], frame["line"], frame["function"], first, text)


def _random(state: RandomState) -> dict[str, Any]:
    name, keys, position, has_gauss, gauss = state.numpy
    told: dict[str, Any] = {"python": state.python, "numpy": [name, keys.tolist(), position, has_gauss, gauss]}
    return told if state.eager is None else told | {"eager": state.eager}
