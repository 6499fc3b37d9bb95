"""Where the runs are, read from TensorBoard's flags as TensorBoard itself reads them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

_URI = re.compile(r"[a-zA-Z][0-9a-zA-Z.]*://.*")


def from_context(context: Any) -> tuple[list[tuple[str, Path]], str]:
    """(roots that the catalog scans, what the user called them) of a TBContext: --logdir or --logdir_spec."""
    flags = context.flags
    spec = getattr(flags, "logdir_spec", "") or ""
    if spec:
        return parse_spec(spec), spec
    logdir = getattr(flags, "logdir", "") or context.logdir or ""
    return [("", Path(os.path.realpath(Path(logdir).expanduser())))], str(logdir)


def parse_spec(spec: str) -> list[tuple[str, Path]]:
    """Name and path of every part of "name:path,path"; the name is empty where there is none."""
    roots: list[tuple[str, Path]] = []
    for part in spec.split(","):
        name, path = "", part
        if ":" in part and not part.startswith("/") and not _URI.match(part) and not os.path.splitdrive(part)[0]:
            name, _, path = part.partition(":")
        roots.append((name, Path(os.path.realpath(Path(path).expanduser()))))
    return roots
