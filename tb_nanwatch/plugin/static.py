"""The frontend bundle, and nothing beside it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from werkzeug import wrappers

from tb_nanwatch.plugin import answer
from tb_nanwatch.plugin.query import shown

FOLDER: Final = Path(__file__).resolve().parent / "static"
YEAR_SECONDS: Final = 365 * 24 * 3600
LONGEST_NAME: Final = 255  # more is an error of the file system, not an answer

#: What a bundle is made of. No HTML: the only page is TensorBoard's own.
CONTENT_TYPES: Final = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".map": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}


def serve(request: wrappers.Request) -> wrappers.Response:
    """The file that the path after /static/ names."""
    name = request.path.partition("/static/")[2]
    path = _confined(name)
    content_type = CONTENT_TYPES.get(path.suffix) if path is not None else None
    if path is None or content_type is None or not path.is_file():
        raise answer.NotFound(f"no file {shown(name)} in the frontend bundle")
    hashed = name.startswith("assets/")  # their names change with their content
    return answer.unchanging(request, path.read_bytes(), content_type, expires=YEAR_SECONDS if hashed else 0)


def _confined(name: str) -> Path | None:
    """The file inside FOLDER that `name` leads to, links followed; None if it leads out."""
    if not name or len(name) > LONGEST_NAME or "\0" in name or "\\" in name or ":" in name:
        return None
    try:
        path = Path(os.path.realpath(FOLDER / name))
    except (OSError, ValueError):
        return None
    return path if path.is_relative_to(os.path.realpath(FOLDER)) else None
