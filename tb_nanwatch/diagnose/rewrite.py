"""The user's own line with a guard in it, so that a remedy can be pasted where the fault is.

Only what parses as one statement is rewritten; everything else gets None, and the remedy shows a general line.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Final

Guard = Callable[[str, str], str]  # (namespace such as "tf", source of the argument) -> source of the guarded one

#: Names of calls in programs, by the type of op that they become.
CALLS: Final = {
    "Log": ("log",),
    "Log1p": ("log1p",),
    "Xlogy": ("xlogy",),
    "Exp": ("exp",),
    "Expm1": ("expm1",),
    "Sqrt": ("sqrt",),
    "Rsqrt": ("rsqrt",),
    "Pow": ("pow",),
    "Acos": ("acos", "arccos"),
    "Asin": ("asin", "arcsin"),
    "Atanh": ("atanh", "arctanh"),
    "Acosh": ("acosh", "arccosh"),
    "Softmax": ("softmax",),
    "LogSoftmax": ("log_softmax",),
    "Reciprocal": ("reciprocal",),
}


def guarded_call(code: str, op_type: str, guard: Guard) -> str | None:
    """`code` with the first argument of every call that makes `op_type` put through `guard`."""
    names = CALLS.get(op_type, ())
    return _edited(code, _Calls(names, guard))


def safe_division(code: str) -> str | None:
    """`code` with every division of tensors as tf.math.divide_no_nan, which is 0 where the denominator is."""
    return _edited(code, _Divisions())


def argument(code: str, op_type: str) -> str | None:
    """Source of the first argument of the first call that makes `op_type`."""
    tree = _parsed(code)
    calls = _calls(tree, CALLS.get(op_type, ())) if tree is not None else ()
    return next((ast.unparse(call.args[0]) for call in calls if call.args), None)


def fraction(code: str) -> tuple[str, str] | None:
    """Source of numerator and denominator of the first division of a line."""
    tree = _parsed(code)
    if tree is None:
        return None
    found = (node for node in ast.walk(tree) if isinstance(node, ast.BinOp) and _divides(node))
    return next(((ast.unparse(node.left), ast.unparse(node.right)) for node in found), None)


def _parsed(code: str) -> ast.Module | None:
    try:
        tree = ast.parse(code.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return (
        tree
        if len(tree.body) == 1
        and isinstance(tree.body[0], ast.Return | ast.Assign | ast.AugAssign | ast.Expr | ast.AnnAssign)
        else None
    )


def _edited(code: str, editor: _Calls | _Divisions) -> str | None:
    tree = _parsed(code)
    if tree is None:
        return None
    editor.visit(tree)
    return ast.unparse(ast.fix_missing_locations(tree)) if editor.edits else None


def _calls(tree: ast.AST, names: Iterable[str]) -> Iterable[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node) in names)


def _name(call: ast.Call) -> str:
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _namespace(call: ast.Call) -> str:
    """What to look the guard up in: "tf" for tf.math.log, "keras.ops" and "K" as they are."""
    function = call.func
    if not isinstance(function, ast.Attribute):
        return "tf"
    text = ast.unparse(function.value)
    return "tf" if text.partition(".")[0] in ("tf", "tf1", "tensorflow", "self") else text


def _divides(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and not isinstance(node.right, ast.Constant)


class _Calls(ast.NodeTransformer):
    def __init__(self, names: tuple[str, ...], guard: Guard) -> None:
        self._names, self._guard, self.edits = names, guard, 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if _name(node) in self._names and node.args:
            guarded = self._guard(_namespace(node), ast.unparse(node.args[0]))
            node.args[0] = ast.parse(guarded, mode="eval").body
            self.edits += 1
        return node


class _Divisions(ast.NodeTransformer):
    def __init__(self) -> None:
        self.edits = 0

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not _divides(node):
            return node
        self.edits += 1
        function = ast.parse("tf.math.divide_no_nan", mode="eval").body
        return ast.Call(func=function, args=[node.left, node.right], keywords=[])
