"""A capsule from the disk, which may come from anybody: nothing in it is run, followed or believed."""

from __future__ import annotations

import stat
from itertools import chain, islice
from pathlib import Path
from typing import Final

from tb_nanwatch.errors import CorruptData, UnreadableError
from tb_nanwatch.format import capsule as layout
from tb_nanwatch.format.arrays import Arrays
from tb_nanwatch.format.metadata import CAPSULE_FOLDER

MOST_TOLD: Final = 16  # capsules named to who gave the folder of a run
MOST_MANIFEST: Final = 16 << 20  # bytes; a recorder writes some ten thousand


def load(path: Path) -> layout.Opened:
    """The capsule in a folder. Raises UnreadableError where there is none, CorruptData where it is damaged."""
    if not path.is_dir():
        what = "is no folder" if path.exists() else "does not exist"
        raise UnreadableError(f"{path} {what}; give the folder of a capsule, as run/plugins/nanwatch/step_12")
    if not (path / layout.MANIFEST).exists() and (known := below(path)):
        told = "".join(f"\n  {capsule}" for capsule in known)
        raise UnreadableError(f"{path} is no capsule itself; below it there is:{told}")
    capsule = layout.parse(_text(path / layout.MANIFEST))
    has_arrays = any(part.kind in ("array", "strings", "ragged", "sparse") for part in capsule.batch.leaves())
    return layout.Opened(
        capsule,
        Arrays(path / layout.BATCH) if has_arrays else None,
        Arrays(path / layout.STATE) if capsule.state else None,
    )


def below(path: Path) -> list[Path]:
    """Capsules of the run in a folder, or of runs up to two folders deeper, by run and step; MOST_TOLD at most."""
    deeper = (path.glob(f"{runs}{CAPSULE_FOLDER}/step_*/{layout.MANIFEST}") for runs in ("", "*/", "*/*/"))
    found = [m.parent for m in islice(chain.from_iterable(deeper), MOST_TOLD) if str(m).isprintable()]
    return sorted(found, key=lambda capsule: (capsule.parent, len(capsule.name), capsule.name))


def _text(path: Path) -> str:
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise CorruptData(f"{path} is no ordinary file")
        if status.st_size > MOST_MANIFEST:
            raise CorruptData(f"{path} has {status.st_size:,} bytes, more than any manifest")
        with path.open("rb") as file:
            return file.read(MOST_MANIFEST).decode("utf-8")
    except FileNotFoundError as error:
        raise UnreadableError(f"{path.parent} holds no capsule: it has no {path.name}") from error
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CorruptData(f"{path} is no text") from error
