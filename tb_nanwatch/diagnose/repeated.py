"""Incidents that are one and the same fault again, such as a bad sample that comes once in every epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.causes import Case, Cause
from tb_nanwatch.format.records import Origin

STEPS_NAMED: Final = 8


def grouped(cases: Sequence[Case], causes: Sequence[Sequence[Cause]]) -> list[list[int]]:
    """Indices of `cases` that tell the same story, in order of the first of each."""
    groups: list[list[int]] = []
    for number, case in enumerate(cases):
        mine = (g for g in groups if _same(cases[g[0]], case) and causes[g[0]][0].name == causes[number][0].name)
        group = next(mine, None)
        if group is None:
            groups.append([number])
        else:
            group.append(number)
    return groups


def tell(same: Sequence[Case]) -> Iterator[str]:
    """A sentence on all but the first of a group; nothing where it is alone."""
    if len(same) > 1:
        steps = [f"{case.incident.first_step:,}" for case in same[1:]]
        at = f"{'step' if len(steps) == 1 else 'steps'} {words.listing(steps, STEPS_NAMED)}"
        yield f"The same happened at {at}{'; it recovered there, too' if same[0].incident.recovered else ''}."


def _same(first: Case, later: Case) -> bool:
    """Whether `later` is the fault of `first` again. Only the first incidents of a run are replayed: where no op is
    known of `later`, phase and tensor have to do.
    """
    one, other = first.incident.origin, later.incident.origin
    if not first.op.known or not (first.incident.recovered and later.incident.recovered):
        return False
    if (one.phase, one.layer) != (other.phase, other.layer):
        return False
    if not later.op.known:
        return one.tensor == other.tensor
    return (one.op_type, _line(one)) == (other.op_type, _line(other))


def _line(origin: Origin) -> tuple[str, int] | None:
    return None if origin.source is None else (origin.source.file, origin.source.line)
