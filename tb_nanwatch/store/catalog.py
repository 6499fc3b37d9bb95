"""All runs below a logdir, kept up to date by tailing their files."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tb_nanwatch.read.discovery import RunFolder, find_runs, readable
from tb_nanwatch.read.recordfile import RecordFile
from tb_nanwatch.store.assemble import assemble
from tb_nanwatch.store.cache import Cache
from tb_nanwatch.store.fileindex import FileIndex
from tb_nanwatch.store.parts import FilePart
from tb_nanwatch.store.run import Run

MIDDLE_BYTES = 128 << 20


class Catalog:
    """All runs below one logdir, or below several named ones (`--logdir_spec`: name to path).

    `refresh` may run in one thread while others read: `runs()` is an immutable snapshot, and so is every Run.
    """

    def __init__(self, roots: Path | str | Mapping[str, Path] | Sequence[tuple[str, Path]]) -> None:
        named = [("", Path(roots))] if isinstance(roots, Path | str) else roots
        self._roots = list(named.items()) if isinstance(named, Mapping) else list(named)
        self._lock = threading.RLock()
        self._indexes: dict[Path, FileIndex] = {}
        self._stamps: dict[str, str] = {}
        self._runs: Mapping[str, Run] = MappingProxyType({})
        self._blocks = Cache()
        self._middles = Cache(MIDDLE_BYTES)
        self.loaded = False
        self.damage: tuple[str, ...] = ()

    def runs(self) -> Mapping[str, Run]:
        """The runs that have a recorder's file, by name, sorted."""
        return self._runs

    @property
    def foreign(self) -> tuple[Path, ...]:
        """Event files that other programs wrote, sorted: what an importer would read."""
        return tuple(sorted(path for path, index in self._indexes.items() if not index.file.ours))

    def refresh(self) -> bool:
        """Read what was added to any file since the last time. True if anything changed. Never raises for bad files."""
        with self._lock:
            indexes: dict[Path, FileIndex] = {}
            runs: dict[str, Run] = {}
            damage: list[str] = []
            for folder in sorted(find_runs(self._roots), key=lambda f: f.name):
                parts = self._parts(folder, indexes, damage)
                if parts:
                    runs[folder.name] = self._run(folder, parts)
            self._indexes = indexes
            changed = not self.loaded or damage != list(self.damage) or list(runs) != list(self._runs)
            changed = changed or any(run is not self._runs[name] for name, run in runs.items())
            if changed:
                self._runs = MappingProxyType(runs)
                self.damage = tuple(damage)
            self.loaded = True
            return changed

    def _parts(self, folder: RunFolder, indexes: dict[Path, FileIndex], damage: list[str]) -> list[FilePart]:
        parts: list[FilePart] = []
        for path in folder.files:
            try:
                status = os.stat(path)  # noqa: PTH116
                if not stat.S_ISREG(status.st_mode):
                    continue
                index = self._indexes.get(path)
                if index is None or index.file.replaced(status):
                    index = FileIndex(RecordFile(path))
                index.refresh(status)
            except FileNotFoundError:
                continue  # thinning and tidying remove files at any time
            except OSError as error:
                damage.append(f"{readable(str(path))}: {error.strerror or error}")
                continue
            indexes[path] = index
            if index.part is not None:
                parts.append(index.part)
            else:
                damage.extend(f"{folder.name}/{sentence}" for sentence in index.file.damage)
        return parts

    def _run(self, folder: RunFolder, parts: list[FilePart]) -> Run:
        old = self._runs.get(folder.name)
        if (
            old is not None
            and [p.uid for p in old.parts] == [p.uid for p in parts]
            and all(mine is theirs for mine, theirs in zip(old.parts, parts, strict=True))
        ):
            return old
        return assemble(folder.name, folder.path, tuple(parts), self._blocks, self._middles, self._renew)

    def _renew(self, name: str) -> Run | None:
        """The run as it is on disk now; for a Run that found a file changed under it."""
        self.refresh()
        return self._runs.get(name)
