"""From a stack to the line that its author would point at."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from types import CodeType
from typing import Any, Final

from tb_nanwatch.format.records import Source
from tb_nanwatch.record.replay.converted import written_as
from tb_nanwatch.record.replay.statement import written

_HERE: Final = str(Path(__file__).resolve().parents[2])
_LIBRARIES: Final = tuple(
    {
        os.path.realpath(p) + os.sep
        for n, p in sysconfig.get_paths().items()
        if n in ("purelib", "platlib", "stdlib", "platstdlib")
    }
)

Frame = tuple[CodeType, int]


def stack(skip: int = 1, limit: int = 80) -> list[Frame]:
    """Frames of the caller, innermost first; cheap enough to be taken at every op."""
    frames: list[Frame] = []
    frame: Any = sys._getframe(skip)
    while frame is not None and len(frames) < limit:
        frames.append(written_as(frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return frames


def is_users(filename: str) -> bool:
    """Whether a file is neither a library's nor ours."""
    if filename.startswith("<") and not filename.startswith("<ipython"):
        return False
    real = os.path.realpath(filename)
    return (
        not real.startswith((_HERE + os.sep, *_LIBRARIES))
        and "site-packages" not in real
        and "dist-packages" not in real
    )


def locate(frames: list[Frame], boundary: CodeType | None) -> tuple[Source | None, Source | None]:
    """(the innermost user's line inside the step, the innermost library's line or None if the user's is innermost).

    Frames from `boundary` outwards belong to the loop around the step: they count only where the step has none.
    """
    inside = frames
    for number, (code, _) in enumerate(frames):
        if code is boundary:
            inside = frames[:number]
            break
    ours = [f for f in inside if not os.path.realpath(f[0].co_filename).startswith(_HERE + os.sep)]
    user = next((f for f in ours if is_users(f[0].co_filename)), None)
    outer = next((f for f in frames[len(inside) :] if is_users(f[0].co_filename)), None)
    library = next((f for f in ours if _worth_naming(f[0].co_filename)), None) if ours else None
    if user is not None:
        inner = None if library is None or library == user else library
        return _source(user), None if inner is None else _source(inner)
    if library is not None:
        return _source(library), None if outer is None else _source(outer)
    return (None if outer is None else _source(outer)), None


def users(frames: list[Frame], boundary: CodeType | None, most: int = 8) -> list[Source]:
    """The user's own lines in a stack, innermost first, inside `boundary`; outside it where there is none inside."""
    stop = next((n for n, (code, _) in enumerate(frames) if code is boundary), len(frames))
    found = [f for f in frames[:stop] if is_users(f[0].co_filename)] or [
        f for f in frames[stop:] if is_users(f[0].co_filename)
    ][:1]
    return [_source(frame) for frame in found[:most]]


def _worth_naming(filename: str) -> bool:
    """Plumbing that every op passes through says nothing."""
    parts = (
        "tensorflow/python/ops/gen_",
        "/dispatch.py",
        "/traceback_utils.py",
        "tensorflow/python/framework",
        "/eager/",
        "/weak_tensor",
    )
    return not any(part in filename for part in parts)


def _source(frame: Frame) -> Source:
    code, line = frame
    return Source(code.co_filename, line, code.co_name, written(code.co_filename, line))
