"""A logdir from the command line, read, or a message that says why not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from tb_nanwatch.diagnose.words import listing, printable
from tb_nanwatch.errors import UnreadableError, UsageError
from tb_nanwatch.store.catalog import Catalog
from tb_nanwatch.store.run import Run


def checked(logdir: str) -> Path:
    """The folder. Raises UnreadableError if it is none."""
    path = Path(logdir).expanduser()
    if not path.exists():
        raise UnreadableError(f"{printable(logdir)} does not exist; give the folder that the recorder writes to")
    if not path.is_dir():
        raise UnreadableError(f"{printable(logdir)} is not a folder; give the folder that holds the event files")
    return path


def load(logdir: str) -> Catalog:
    """The catalog of a logdir, read once, with a spinner on a terminal. Raises UnreadableError if it holds no run."""
    path = checked(logdir)
    catalog = Catalog(path)
    with progress(f"Reading {printable(logdir)}"):
        catalog.refresh()
    if not catalog.runs():
        why = f" ({catalog.damage[0]})" if catalog.damage else ""
        raise UnreadableError(
            f"no run recorded by nanwatch below {printable(logdir)}{why}; was training watched, and is this its logdir?"
        )
    return catalog


def chosen(catalog: Catalog, name: str | None) -> list[Run]:
    """All runs, or the one of that name. Raises UsageError for an unknown name."""
    runs = catalog.runs()
    if name is None:
        return list(runs.values())
    if name not in runs:
        known = listing([printable(known) for known in runs], 8)
        raise UsageError(f"there is no run {printable(name)!r}; there is {known}")
    return [runs[name]]


@contextlib.contextmanager
def progress(text: str) -> Iterator[None]:
    """A spinner on stderr while something takes its time; silent where stderr is no terminal."""
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    if console.is_terminal:
        with console.status(text):
            yield
    else:
        yield
