"""What an error that ended a step says, without what TensorFlow wraps around it."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Final

import tensorflow as tf

from tb_nanwatch.record.replay.source import is_users

LONGEST: Final = 2000  # characters kept of a message
MOST: Final = 16  # errors noted of a run; a loop may try again and again

#: How data ends, and how whoever schedules steps ends them: no failures of a training.
_ENDS: Final = (StopIteration, StopAsyncIteration, tf.errors.OutOfRangeError, tf.errors.CancelledError)
_WRAPPED: Final = re.compile(
    r"\x1b\[[0-9;]*m|\{\{function_node [^}]*\}\}|\[\[\{\{node [^}]*\}\}\]\]|\[Op:[^\]]*\]( name: \S*)?|^Node: '[^']*'"
)
_HEADING: Final = re.compile(r"Graph execution error:|Detected at node .* defined at|Exception encountered when")
_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+), in')


def told(error: Exception) -> str:
    """One line, "InvalidArgumentError: ... (train.py, line 34)"; empty for what is no failure."""
    if isinstance(error, _ENDS):
        return ""
    message = str(getattr(error, "message", None) or error)
    where = _line(message, error)
    return f"{type(error).__name__}: {_essence(message)}{f' ({where})' if where else ''}"


def _essence(message: str) -> str:
    lines = [re.sub(r"\s+", " ", _WRAPPED.sub("", line)).strip() for line in message.splitlines()]
    said = [line for line in lines if line and not _HEADING.match(line) and not _FRAME.match(line)]
    until = next((n for n, line in enumerate(said) if line.startswith("Arguments received by")), len(said))
    return " ".join(said[:until])[:LONGEST] or "no message"


def _line(message: str, error: Exception) -> str:
    """The innermost line of the user's own: in the message, which knows the line of a compiled op, or in the stack."""
    frames = [(file, int(line)) for file, line in _FRAME.findall(message)]
    frames = frames or [(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__)]
    for file, line in reversed(frames):
        if is_users(file):
            return f"{Path(file).name}, line {line}"
    return ""
