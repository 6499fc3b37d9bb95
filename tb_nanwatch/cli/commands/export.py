"""Writes the recorded numbers of a run as one table, for a spreadsheet, NumPy or pandas.

The ending of FILE chooses the format. CSV: a row per step, a column per tensor. NPZ: arrays steps, wall_times,
iterations, tags, values[steps, tags] and state[steps, tags] (1 NaN, 2 +Inf, 4 -Inf, 8 not finite, 16 measured). JSON:
the same as lists. Non-finite numbers are NaN, Infinity, -Infinity; what was not measured is empty, null, or state 0.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.cli import exits, logdir
from tb_nanwatch.diagnose.strict import strict
from tb_nanwatch.diagnose.words import count, printable
from tb_nanwatch.errors import NanWatchError, UsageError
from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import SCALAR_KINDS, TensorInfo
from tb_nanwatch.store.columns import STATS, Series
from tb_nanwatch.store.run import Run

HELP: Final = "write the recorded numbers as CSV, NPZ or JSON"
EXAMPLES: Final = """\
  nanwatch export logs --run run1 --out norms.csv
  nanwatch export logs --run run1 --tag 'gradient/*' --stat max_abs --out gradients.npz"""

TENSOR_STATS: Final = tuple(stat for stat in STATS if stat != "value")


@dataclass(frozen=True)
class Grid:
    """Steps by tensors. values float64[n, m], non-finite as they were; state uint8[n, m], 0 where not measured."""

    steps: NDArray[np.int64]
    wall_times: NDArray[np.float64]
    iterations: NDArray[np.int64]
    tags: tuple[str, ...]
    values: NDArray[np.float64]
    state: NDArray[np.uint8]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("logdir", metavar="LOGDIR", help="folder that the recorder wrote to, or one above it")
    parser.add_argument("--run", metavar="NAME", help="run to export; may be left out where there is one")
    parser.add_argument("--tag", metavar="PATTERN", default="*", help="only tensors like 'weight/*' (default: all)")
    parser.add_argument("--stat", choices=TENSOR_STATS, default="norm", help="of tensors; scalars give their value")
    parser.add_argument("--out", metavar="FILE", required=True, help="file ending in .csv, .npz or .json")


def run(args: argparse.Namespace) -> int:
    """Write the file; say what it holds."""
    out = _checked(args.out)
    runs = logdir.chosen(logdir.load(args.logdir), args.run)
    if len(runs) > 1:
        raise UsageError(f"there are {len(runs)} runs; name one with --run, as {printable(runs[0].name)!r}")
    infos = [info for info in runs[0].tensors if fnmatch.fnmatchcase(info.tag, args.tag)]
    if not infos:
        raise UsageError(f"--tag {printable(args.tag)}: no tensor of run {printable(runs[0].name)!r} is called so")
    with logdir.progress(f"Writing {printable(args.out)}"):
        grid = gather(runs[0], infos, args.stat)
        try:
            WRITERS[out.suffix](out, grid)
        except OSError as error:
            why = f"it cannot be written ({error.strerror or error}); name a file where you may write"
            raise NanWatchError(f"--out {printable(args.out)}: {why}") from error
    print(f"{printable(args.out)}: {count(len(grid.steps), 'step')} of {count(len(grid.tags), 'tensor')}")
    return exits.HEALTHY


def _checked(text: str) -> Path:
    """The file to write. Raises UsageError, before anything is read, for one that cannot be written."""
    out, named = Path(text).expanduser(), f"--out {printable(text)}"
    if out.suffix not in WRITERS:
        raise UsageError(f"{named}: the ending chooses the format: {', '.join(WRITERS)}")
    if not out.parent.is_dir():
        folder = printable(str(out.parent))
        raise UsageError(f"{named}: there is no folder {folder}; make it first, or name a file in one that is there")
    if out.is_dir():
        raise UsageError(f"{named} is a folder; name a file, such as {printable(str(Path(text) / f'run{out.suffix}'))}")
    return out


def gather(run: Run, infos: Sequence[TensorInfo], stat: str) -> Grid:
    """One statistic of many tensors at every step at which any was measured."""
    columns = [run.series(info.tag, "value" if info.kind in SCALAR_KINDS else stat) for info in infos]
    steps = np.unique(np.concatenate([column.steps for column in columns]))
    wall_times, iterations = np.full(len(steps), np.nan), np.full(len(steps), -1, np.int64)
    values = np.full((len(steps), len(columns)), np.nan)
    state = np.zeros((len(steps), len(columns)), np.uint8)
    for number, column in enumerate(columns):
        at = np.searchsorted(steps, column.steps)
        wall_times[at], iterations[at] = column.wall_times, column.iterations
        values[at, number], state[at, number] = _with_infinities(column), column.state
    return Grid(steps, wall_times, iterations, tuple(info.tag for info in infos), values, state)


def _with_infinities(column: Series) -> NDArray[np.float64]:
    """Values as they were: the store keeps what was not finite in the state alone."""
    above, below = column.state & magnitude.POS_INF > 0, column.state & magnitude.NEG_INF > 0
    other = (column.state & (magnitude.NAN | magnitude.UNKNOWN) > 0) | (above & below)
    return np.select([other, above, below], [np.nan, np.inf, -np.inf], column.values)


def _write_csv(path: Path, grid: Grid) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["step", "wall_time", "iteration", *map(_no_formula, grid.tags)])
        for i, row in enumerate(_rows(grid)):
            writer.writerow([grid.steps[i], repr(float(grid.wall_times[i])), grid.iterations[i], *row])


def _no_formula(tag: str) -> str:
    """A name that a spreadsheet would run as a formula is quoted, as spreadsheets ask for it."""
    return f"'{tag}" if tag[:1] in "=+-@\t\r" else tag


def _write_npz(path: Path, grid: Grid) -> None:
    np.savez_compressed(
        path,
        steps=grid.steps,
        wall_times=grid.wall_times,
        iterations=grid.iterations,
        tags=np.array(grid.tags),
        values=grid.values,
        state=grid.state,
    )


def _write_json(path: Path, grid: Grid) -> None:
    document = {
        "steps": grid.steps.tolist(),
        "wall_times": grid.wall_times.tolist(),
        "iterations": grid.iterations.tolist(),
        "tensors": dict(zip(grid.tags, map(list, zip(*_rows(grid), strict=True)), strict=True)),
    }
    path.write_text(json.dumps(strict(document), allow_nan=False), encoding="utf-8")


def _rows(grid: Grid) -> Iterator[list[Any]]:
    """Values as text formats hold them: strict JSON numbers, None where nothing was measured."""
    for values, states in zip(grid.values, grid.state, strict=True):
        yield [strict(value) if state else None for value, state in zip(values.tolist(), states, strict=True)]


WRITERS: Final[dict[str, Callable[[Path, Grid], None]]] = {".csv": _write_csv, ".npz": _write_npz, ".json": _write_json}
