"""Which folders are runs, and what they are called: TensorBoard's rules, so that both lists name the same runs.

A run is a folder that directly holds a file whose name contains "tfevents"; its name is the folder's path
relative to the logdir, "." for the logdir itself. Links to folders are followed, a loop of links is not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EVENT_FILE_MARK: Final = "tfevents"
MAX_VISITS: Final = 16  # how many paths of links may lead to one folder before further ones are left out


@dataclass(frozen=True)
class RunFolder:
    """A folder with event files. `name` as TensorBoard shows it; `files` sorted by name, so oldest first."""

    name: str
    path: Path
    files: tuple[Path, ...]


def find_runs(roots: Mapping[str, Path] | Sequence[tuple[str, Path]]) -> Iterator[RunFolder]:
    """Runs below every root. A root named "" is a plain logdir; any other name leads the names of its runs.

    `roots` may be pairs, since several roots may share a name or have none. What cannot be listed is passed over, as
    a folder that vanishes meanwhile is.
    """
    for root_name, root in roots.items() if isinstance(roots, Mapping) else roots:
        visits: dict[tuple[int, int], int] = {}
        top = Path(root).expanduser()
        for folder, files in _walk(str(top), (), visits):
            relative = os.path.relpath(folder, top)
            name = os.path.join(root_name, relative) if root_name else relative  # noqa: PTH118  # Path drops "/."
            yield RunFolder(readable(name), Path(folder), files)


def readable(name: str) -> str:
    """A name from a disk as text that can be printed and sent: bytes that are no UTF-8 become U+FFFD."""
    return os.fsencode(name).decode(errors="replace")


def _walk(
    folder: str, ancestors: tuple[tuple[int, int], ...], visits: dict[tuple[int, int], int]
) -> Iterator[tuple[str, tuple[Path, ...]]]:
    try:
        status = os.stat(folder)  # noqa: PTH116
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda e: e.name)
    except OSError:
        return
    identity = (status.st_dev, status.st_ino)
    visits[identity] = visits.get(identity, 0) + 1
    if identity in ancestors or visits[identity] > MAX_VISITS:
        return
    files = tuple(Path(e.path) for e in entries if EVENT_FILE_MARK in e.name and _is(e.is_file))
    if files:
        yield folder, files
    for entry in entries:
        if _is(entry.is_dir):
            yield from _walk(entry.path, (*ancestors, identity), visits)


def _is(question: Callable[[], bool]) -> bool:
    try:
        return question()  # follows links
    except OSError:
        return False
