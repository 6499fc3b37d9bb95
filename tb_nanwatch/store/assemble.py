"""One run out of the files of all its attempts, workers and segments."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tb_nanwatch.format.records import PHASES, Incident, RunHeader, TensorInfo
from tb_nanwatch.store.cache import Cache
from tb_nanwatch.store.loader import Loader
from tb_nanwatch.store.parts import FilePart
from tb_nanwatch.store.run import Attempt, Run
from tb_nanwatch.store.visible import Piece, Ranges, visible_ranges

Writer = tuple[str, int, int]  # writer_id, attempt, worker
PRECISION = ("op", "layer", "step")


def assemble(
    name: str,
    path: Path,
    parts: tuple[FilePart, ...],
    blocks: Cache,
    middles: Cache,
    renew: Callable[[str], Run | None],
) -> Run:
    """The run that the parts form; at least one part."""
    writers = _writers(parts)
    attempt_of = _attempt_numbers(writers)
    extents = _extents(writers, attempt_of)
    visible = visible_ranges(extents)
    pieces: list[Piece] = []
    tables: dict[int, dict[str, TensorInfo]] = defaultdict(dict)
    for writer, mine in writers.items():
        attempt = attempt_of[writer]
        ids = {info.tag: info for part in mine for info in part.infos}
        for tag, info in ids.items():
            tables[attempt].setdefault(tag, info)  # the first worker's word counts
        pieces += [Piece(part, attempt, ids, visible.get(attempt, Ranges())) for part in mine]
    merged: dict[str, TensorInfo] = {}
    for attempt in sorted(tables):
        merged.update(tables[attempt])
    return Run(
        name=name,
        path=path,
        version=hashlib.blake2b(
            "\n".join(p.stamp for p in parts).encode(errors="backslashreplace"), digest_size=6
        ).hexdigest(),
        parts=parts,
        attempts=_attempts(writers, attempt_of, extents),
        pieces=tuple(pieces),
        infos=merged,
        incidents=_incidents(writers, attempt_of, extents),
        loader=Loader(blocks, middles),
        renew=renew,
    )


def _writers(parts: Sequence[FilePart]) -> dict[Writer, list[FilePart]]:
    """Files by recorder: attempts in order, then workers; the segments of each in order."""
    headers = {part.header.writer_id: part.header for part in parts if not part.header_lost}
    found: dict[Writer, list[FilePart]] = defaultdict(list)
    for part in parts:
        header = headers.get(part.header.writer_id, part.header) if part.header_lost else part.header
        found[header.writer_id, header.attempt, header.worker].append(part)
    for mine in found.values():
        mine.sort(key=lambda p: (p.header_lost, p.header.segment))  # the first speaks for all
    ordered = sorted(found.items(), key=lambda item: _age(item[1][0].header))
    return dict(ordered)


def _age(header: RunHeader) -> tuple[int, int, float]:
    return header.attempt, header.worker, header.wall_time


def _attempt_numbers(writers: dict[Writer, list[FilePart]]) -> dict[Writer, int]:
    """Attempt of every recorder. Two that claim the same place (runs copied together) get one each, by age."""
    taken: set[tuple[int, int]] = set()
    numbers: dict[Writer, int] = {}
    for writer, mine in writers.items():
        attempt, worker = mine[0].header.attempt, mine[0].header.worker
        while (attempt, worker) in taken:
            attempt += 1
        taken.add((attempt, worker))
        numbers[writer] = attempt
    return numbers


def _extents(writers: dict[Writer, list[FilePart]], attempt_of: dict[Writer, int]) -> dict[int, tuple[int, int]]:
    """First and last step that each attempt recorded; attempts without steps are left out."""
    extents: dict[int, tuple[int, int]] = {}
    for writer, mine in writers.items():
        for part in mine:
            if part.slots:
                first, last = part.slots[0].first, part.slots[-1].last
                old = extents.get(attempt_of[writer], (first, last))
                extents[attempt_of[writer]] = (min(first, old[0]), max(last, old[1]))
    return extents


def _attempts(
    writers: dict[Writer, list[FilePart]], attempt_of: dict[Writer, int], extents: dict[int, tuple[int, int]]
) -> tuple[Attempt, ...]:
    members: dict[int, list[list[FilePart]]] = defaultdict(list)
    for writer, mine in writers.items():
        members[attempt_of[writer]].append(mine)
    attempts: list[Attempt] = []
    for number in sorted(members):
        header = members[number][0][0].header
        first, last = extents.get(number, (header.first_step, header.first_step - 1))
        closed = [next((p.closed for p in reversed(mine) if p.closed), None) for mine in members[number]]
        attempts.append(
            Attempt(
                attempt=number,
                writer_id=header.writer_id,
                header=header,
                first_step=first,
                last_step=last,
                ended=all(c is not None for c in closed),
                dropped=sum(c.dropped for c in closed if c is not None),
            )
        )
    return tuple(attempts)


def _incidents(
    writers: dict[Writer, list[FilePart]], attempt_of: dict[Writer, int], extents: dict[int, tuple[int, int]]
) -> tuple[Incident, ...]:
    """By first step, ids unique. What several workers saw at the same step is told once, as the best informed says.

    One that lasted when its attempt ended, with another attempt after it, ends with it: what comes then is a new story.
    """
    newest_attempt = max(extents, default=0)
    found: dict[tuple[int, int], tuple[tuple[int, ...], Incident]] = {}
    for writer, mine in writers.items():
        newest = {incident.id: incident for part in mine for incident in part.incidents}
        attempt = attempt_of[writer]
        for incident in newest.values():
            if incident.last_step is None and attempt < newest_attempt and attempt in extents:
                incident = replace(incident, last_step=extents[attempt][1])  # noqa: PLW2901
            key = (attempt, incident.first_step)
            rank = _rank(incident)
            if key not in found or rank < found[key][0]:
                found[key] = rank, incident
    taken: set[int] = set()
    unique: list[Incident] = []
    following = max((incident.id for _, incident in found.values()), default=0) + 1
    for _, (_, incident) in sorted(found.items()):
        if incident.id in taken:
            incident, following = replace(incident, id=following), following + 1  # noqa: PLW2901
        taken.add(incident.id)
        unique.append(incident)
    return tuple(sorted(unique, key=lambda i: (i.first_step, i.id)))


def _rank(incident: Incident) -> tuple[int, ...]:
    origin = incident.origin
    precision = PRECISION.index(origin.precision) if origin.precision in PRECISION else len(PRECISION)
    return precision, PHASES.index(origin.phase) if origin.phase in PHASES else len(PHASES)
