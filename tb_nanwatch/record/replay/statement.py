"""The text of a line of a program; of a statement over several lines all of it, in one line."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from typing import Final

MOST_LINES: Final = 6  # of a statement; of a longer one, the largest expression on so few lines


def written(file: str, line: int) -> str:
    """What stands there; empty where the file cannot be read."""
    here = linecache.getline(file, line).strip()
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
        around = [node for node in _around(tree, line) if 1 < _lines(node) <= MOST_LINES]
        return ast.unparse(max(around, key=_lines)) if around else here
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a notebook's cell may hold more than Python
        return here


def _around(tree: ast.AST, line: int) -> Iterator[ast.stmt | ast.expr]:
    """The expressions, and statements without others inside, that a line is part of; outer ones before inner ones."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and (hasattr(node, "body") or isinstance(node, ast.Match)):
            continue
        if isinstance(node, ast.stmt | ast.expr) and node.lineno <= line <= (node.end_lineno or 0):
            yield node


def _lines(node: ast.stmt | ast.expr) -> int:
    return (node.end_lineno or 0) - node.lineno + 1
