"""Columns of the input that are unlike the others, in words: of another size, or constant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.format.records import BatchPart, Column
from tb_nanwatch.store.run import Run

#: The curvature of the first layer goes with the square of a column's size: at 4,096 times the others' it exceeds the
#: 2**24 steps of float32, so that no learning rate moves the weights of both.
APART: Final = 4096.0
LARGE: Final = 1e4  # raw tables that train all the same (areas, prices) mostly stay below
NAMED: Final = 3


def parts_of(run: Run) -> tuple[BatchPart, ...]:
    """What a batch of the run is made of; empty where nobody looked."""
    return run.batch.parts if run.batch is not None else ()


def odd(run: Run) -> tuple[BatchPart, ...]:
    """Parts of the batch with columns far larger than their others, the oddest first."""
    parts = [part for part in parts_of(run) if part.extreme and part.typical > 0]
    return tuple(sorted(parts, key=lambda part: -part.extreme[0].reach / part.typical))


def apart(part: BatchPart) -> bool:
    """Whether its largest column is beyond what one network and one learning rate can make of it."""
    return part.extreme[0].reach >= max(LARGE, APART * part.typical)


def told(part: BatchPart) -> str:
    """Its columns in one sentence: "the input x: column 7 ranges from 0 to 2.1e6, 40,000 times the median column"."""
    return f"{words.place('input', part.name)}: {'; '.join(_said(part))}"


def of_them(part: BatchPart) -> str:
    """The same as a sentence of its own: "Column 7 ranges from 0 to 2.1e6, 40,000 times the median column"."""
    said = "; ".join(_said(part))
    return said[0].upper() + said[1:]


def _said(part: BatchPart) -> list[str]:
    said = [_ranges(part, column) for column in part.extreme[:NAMED]]
    more = part.extreme_count - len(said)
    said += [f"{more:,} more {'is' if more == 1 else 'are'} as odd"] if more > 0 else []
    said += [never_change(part)] if part.constant else []
    return said


def never_change(part: BatchPart) -> str:
    """Its constant columns: "columns 3 and 9 never change"."""
    count = part.constant_count
    listed = [f"{column.index:,}" for column in part.constant[: NAMED + 1]]
    rest = count - len(listed)
    which = words.listing(listed) if rest <= 0 else f"{', '.join(listed)} and {rest:,} more"
    return f"{column_name(part, count)} {which} never {'changes' if count == 1 else 'change'}"


def column_name(part: BatchPart, count: int = 1) -> str:
    """What a place of the last dimension is called: "column" of a table, "channel" of pictures."""
    noun = "channel" if part.shape is not None and len(part.shape) == 4 else "column"
    return noun if count == 1 else f"{noun}s"


def indices(columns: Sequence[Column]) -> list[int]:
    """Their places in the last dimension."""
    return [column.index for column in columns]


def _ranges(part: BatchPart, column: Column) -> str:
    low, high = words.magnitude(column.min), words.magnitude(column.max)
    times = words.magnitude(float(f"{column.reach / part.typical:.2g}"))
    name = f"{column_name(part)} {column.index:,}"
    if column.min == column.max:
        return f"{name} is {high} throughout, {times} times the median {column_name(part)}"
    return f"{name} ranges from {low} to {high}, {times} times the median {column_name(part)}"
