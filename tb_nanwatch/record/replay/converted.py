"""Lines of a program that autograph rewrote, under the name that their author knows.

Legacy Keras hands losses and layers to autograph even where a step runs op by op: what runs then is a file in the
temporary folder.
"""

from __future__ import annotations

from types import CodeType
from typing import Any, Final

_MARK: Final = "__autograph_generated_file"
_known: dict[tuple[CodeType, int], tuple[CodeType, int]] = {}


def written_as(code: CodeType, line: int) -> tuple[CodeType, int]:
    """The same place in the file that was rewritten; the place itself where nothing was, or nobody knows from what."""
    if _MARK not in code.co_filename:
        return code, line
    if (code, line) not in _known:
        _known[code, line] = _looked_up(code, line)
    return _known[code, line]


def _looked_up(code: CodeType, line: int) -> tuple[CodeType, int]:
    try:
        origin = _origin(code.co_filename, line)
    except (ImportError, AttributeError):  # TensorFlow's internals, of another version
        origin = None
    if origin is None:
        return code, line
    return code.replace(
        co_filename=origin.loc.filename, co_name=origin.function_name or code.co_name
    ), origin.loc.lineno


def _origin(filename: str, line: int) -> Any:
    """Autograph's own record of the line; of one that it added itself, the nearest above."""
    from tensorflow.python.autograph.impl import api

    best, origin = 0, None
    for factories in list(api._TRANSPILER._cache._cache.values()):
        for factory in list(factories.values()):
            for place, found in factory.source_map.items():
                if place.filename == filename and best < place.lineno <= line:
                    best, origin = place.lineno, found
    return origin
