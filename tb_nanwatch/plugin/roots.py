"""Where the runs are, read from TensorBoard's flags as TensorBoard itself reads them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

_URI = re.compile(r"[a-zA-Z][0-9a-zA-Z.]*://.*")


def from_context(context: Any) -> tuple[Path | dict[str, Path], str]:
    """(what the catalog scans, how a user knows it) for a TBContext: --logdir, or the named parts of --logdir_spec."""
    flags = context.flags
    spec = getattr(flags, "logdir_spec", "") or ""
    if spec:
        return parse_spec(spec), spec
    logdir = getattr(flags, "logdir", "") or context.logdir or ""
    return Path(os.path.realpath(Path(logdir).expanduser())), str(logdir)


def parse_spec(spec: str) -> dict[str, Path]:
    """Name to path of "name:path,path". An unnamed part keeps TensorBoard's names of its runs; its key is empty."""
    roots: dict[str, Path] = {}
    for part in spec.split(","):
        name, path = "", part
        if ":" in part and not part.startswith("/") and not _URI.match(part) and not os.path.splitdrive(part)[0]:
            name, _, path = part.partition(":")
        roots[name] = Path(os.path.realpath(Path(path).expanduser()))
    return roots
