"""Query strings become typed queries here, or a BadQuery that says which parameter, what was given, what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from tb_nanwatch.store.columns import STATS

KINDS: Final = ("weight", "gradient", "applied", "activation", "update", "input")
MAX_LEVEL: Final = 40
MAX_ROWS: Final = 4096
MAX_BINS: Final = 4096
DEFAULT_BINS: Final = 1024
TILE_BINS: Final = 256
MAX_STEP: Final = 2**53 - 1  # the largest integer that a browser holds exactly
SHOWN: Final = 80  # characters of a rejected value that are repeated to whoever sent it


class BadQuery(Exception):  # a 400, not a fault of ours
    """A parameter that is malformed, unknown or missing."""


class Args(Protocol):
    """What werkzeug's request.args offers."""

    def getlist(self, key: str) -> list[str]:
        """All values of a parameter."""

    def keys(self) -> Iterable[str]:
        """Names of the parameters."""


@dataclass(frozen=True)
class TileQuery:
    """Of /tile. rows is a half-open range, None for all."""

    run: str
    kind: str
    level: int
    tile: int
    rows: tuple[int, int] | None
    attempt: int | None


@dataclass(frozen=True)
class SeriesQuery:
    """Of /series. stat None: the default of the tensor's kind; first and last inclusive, None for the run's own."""

    run: str
    tag: str
    stat: str | None
    first: int | None
    last: int | None
    bins: int
    attempt: int | None


@dataclass(frozen=True)
class CellQuery:
    """Of /cell."""

    run: str
    tag: str
    step: int
    attempt: int | None


def nothing(args: Args) -> None:
    """Of routes without parameters."""
    _Parameters(args, ())


def run(args: Args) -> str:
    """Of routes about one run."""
    return _Parameters(args, ("run",)).text("run")


def tile(args: Args) -> TileQuery:
    """Of /tile."""
    given = _Parameters(args, ("run", "kind", "level", "tile", "rows", "attempt"))
    level = given.integer("level", 0, MAX_LEVEL)
    return TileQuery(
        run=given.text("run"),
        kind=given.choice("kind", KINDS),
        level=level,
        # the last tile whose steps a browser can still count
        tile=given.integer("tile", 0, (MAX_STEP >> level) // TILE_BINS),
        rows=given.rows("rows"),
        attempt=given.optional_integer("attempt", 0, MAX_STEP),
    )


def series(args: Args) -> SeriesQuery:
    """Of /series."""
    given = _Parameters(args, ("run", "tag", "stat", "first", "last", "bins", "attempt"))
    first = given.optional_integer("first", 0, MAX_STEP)
    last = given.optional_integer("last", 0, MAX_STEP)
    if first is not None and last is not None and first > last:
        raise BadQuery(f"parameters first and last: {first} is after {last}; allowed is first ≤ last")
    bins = given.optional_integer("bins", 1, MAX_BINS)
    return SeriesQuery(
        run=given.text("run"),
        tag=given.text("tag"),
        stat=given.choice("stat", STATS) if given.has("stat") else None,
        first=first,
        last=last,
        bins=DEFAULT_BINS if bins is None else bins,
        attempt=given.optional_integer("attempt", 0, MAX_STEP),
    )


def cell(args: Args) -> CellQuery:
    """Of /cell."""
    given = _Parameters(args, ("run", "tag", "step", "attempt"))
    return CellQuery(
        run=given.text("run"),
        tag=given.text("tag"),
        step=given.integer("step", 0, MAX_STEP),
        attempt=given.optional_integer("attempt", 0, MAX_STEP),
    )


class _Parameters:
    """The parameters of one request: each known, none given twice."""

    def __init__(self, args: Args, allowed: tuple[str, ...]) -> None:
        names = list(args.keys())
        for name in names:
            if name not in allowed:
                known = f"allowed are {', '.join(allowed)}" if allowed else "this route takes none"
                raise BadQuery(f"unknown parameter {shown(name)}; {known}")
            if len(args.getlist(name)) > 1:
                raise BadQuery(f"parameter {name}: given {len(args.getlist(name))} times; allowed is once")
        self._values: Mapping[str, str] = {name: args.getlist(name)[0] for name in names}

    def has(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str:
        value = self._values.get(name, "")
        if not value:
            raise BadQuery(f"parameter {name}: {'empty' if name in self._values else 'missing'}; it is required")
        return value

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        value = self.text(name)
        if value not in allowed:
            raise BadQuery(f"parameter {name}: {shown(value)} is unknown; allowed are {', '.join(allowed)}")
        return value

    def integer(self, name: str, least: int, most: int) -> int:
        value = self.text(name)
        # int() takes signs, blanks, underscores and digits of any script, and a megabyte of digits takes it seconds
        if not re.fullmatch(r"[0-9]{1,16}", value) or not least <= int(value) <= most:
            raise BadQuery(
                f"parameter {name}: {shown(value)} is not allowed; allowed is a whole number {least} to {most}"
            )
        return int(value)

    def optional_integer(self, name: str, least: int, most: int) -> int | None:
        return self.integer(name, least, most) if self.has(name) else None

    def rows(self, name: str) -> tuple[int, int] | None:
        if not self.has(name):
            return None
        value = self._values[name]
        match = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", value)
        if match is None or not 0 < int(match[2]) - int(match[1]) <= MAX_ROWS:
            allowed = f"allowed is A:B with A < B and at most {MAX_ROWS} rows"
            raise BadQuery(f"parameter {name}: {shown(value)} is not allowed; {allowed}")
        return int(match[1]), int(match[2])


def shown(value: str) -> str:
    """A value as an error repeats it: quoted, unprintable characters escaped, cut short."""
    return repr(value if len(value) <= SHOWN else f"{value[:SHOWN]}...").encode("ascii", "backslashreplace").decode()
