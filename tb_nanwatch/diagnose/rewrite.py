"""The user's own line with a guard in it, so that a remedy can be pasted where the fault is.

Only what parses as simple statements is rewritten; everything else gets None, and the remedy shows a general line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from typing import Final

from tb_nanwatch.diagnose.functions import FUNCTIONS

Guard = Callable[[str, str], str]  # (namespace such as "tf", source of the argument) -> source of the guarded one

#: Names of calls in programs, by the type of op that they become.
CALLS: Final = {
    "Log": ("log",),
    "Log1p": ("log1p",),
    "Xlogy": ("xlogy",),
    "Xlog1py": ("xlog1py",),
    "Exp": ("exp",),
    "Expm1": ("expm1",),
    "Sinh": ("sinh",),
    "Cosh": ("cosh",),
    "Sqrt": ("sqrt",),
    "Rsqrt": ("rsqrt",),
    "Pow": ("pow",),
    "Acos": ("acos", "arccos"),
    "Asin": ("asin", "arcsin"),
    "Atanh": ("atanh", "arctanh"),
    "Acosh": ("acosh", "arccosh"),
    "Erfinv": ("erfinv",),
    "Ndtri": ("ndtri",),
    "Lgamma": ("lgamma",),
    "Digamma": ("digamma",),
    "Softmax": ("softmax",),
    "LogSoftmax": ("log_softmax",),
    "Reciprocal": ("reciprocal",),
    "Cholesky": ("cholesky",),
}

#: Where a program may find minimum, maximum and clip beside the function that it calls.
SPACES: Final = ("keras.ops", "ops", "keras.backend", "tf.keras.backend", "backend", "K", "np", "numpy")


def guarded_call(code: str, op_type: str, guard: Guard) -> str | None:
    """`code` with the argument that matters of every call that makes `op_type` put through `guard`."""
    return _edited(code, _Calls(CALLS.get(op_type, ()), guard, _argument(op_type)))


def safe_division(code: str) -> str | None:
    """`code` with every division of tensors as tf.math.divide_no_nan, which is 0 where the denominator is."""
    return _edited(code, _Divisions(lambda above, below: f"tf.math.divide_no_nan({above}, {below})"))


def safe_reciprocal(code: str) -> str | None:
    """`code` with every call of a reciprocal as tf.math.reciprocal_no_nan, which is 0 where its argument is."""
    whole = _Whole(CALLS["Reciprocal"], lambda _, __, x, rest: f"tf.math.reciprocal_no_nan({x}{rest})", 0)
    return _edited(code, whole)


def guarded_root(code: str, op_type: str, epsilon: str) -> str | None:
    """`code` with `epsilon` as the least that a root is taken of, also where a norm or a deviation takes it."""

    def least(space: str, x: str) -> str:
        return f"{space}.maximum({x}, {epsilon})"

    return guarded_call(code, op_type, least) or _edited(code, _Roots(epsilon))


def definite(code: str, epsilon: str) -> str | None:
    """`code` with `epsilon` added to the diagonal of every matrix that is taken apart by a Cholesky decomposition."""

    def raised(_: str, x: str) -> str:
        return f"tf.linalg.set_diag({x}, tf.linalg.diag_part({x}) + {epsilon})"

    return guarded_call(code, "Cholesky", raised)


def none_of_nothing(code: str, op_type: str) -> str | None:
    """`code` with 0 in the place of a mean or a largest value of nothing."""
    names = {"Mean": ("reduce_mean", "mean"), "Max": ("reduce_max", "max"), "Min": ("reduce_min", "min")}
    return _edited(code, _Empty(names.get(op_type, ())))


def where_inside(code: str, op_type: str, valid: str, harmless: str, divides: bool = False) -> str | None:
    """Lines in the place of `code`: every call that makes `op_type`, or every division, with a harmless argument where
    its own is not valid, and 0 there.

    valid: a condition on "{x}"; harmless: "ones" or "zeros", or the source of an argument like "{x}".
    """
    tree = _parsed(code)
    if tree is None or len(tree.body) > 1:  # what is inside a call may be made by the statement before
        return None
    taken = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    made: list[str] = []
    like = f"tf.{harmless}_like({{x}})" if harmless.isidentifier() else harmless

    def named(wanted: str) -> str:
        name = next(n for n in (wanted, *(f"{wanted}_{k}" for k in range(2, 99))) if n not in taken)
        taken.add(name)
        return name

    def safe(x: str) -> tuple[str, str]:
        """(name of the argument, name of its harmless stand-in)."""
        argument = x
        if not x.isidentifier():
            argument = named("inner")
            made.append(f"{argument} = {x}")
        stand_in = named("safe")
        made.append(f"{stand_in} = tf.where({valid.format(x=argument)}, {argument}, {like.format(x=argument)})")
        return argument, stand_in

    chosen = "where(" in code  # then the program throws away itself what is not valid

    def quotient(above: str, below: str) -> str:
        argument, stand_in = safe(below)
        call = f"({above}) / {stand_in}"
        return call if chosen else f"tf.where({valid.format(x=argument)}, {call}, tf.zeros_like({stand_in}))"

    def call(function: str, before: str, x: str, rest: str) -> str:
        argument, stand_in = safe(x)
        made_safe = f"{function}({before}{stand_in}{rest})"
        return made_safe if chosen else f"tf.where({valid.format(x=argument)}, {made_safe}, tf.zeros_like({stand_in}))"

    editor = _Divisions(quotient) if divides else _Whole(CALLS.get(op_type, ()), call, _argument(op_type))
    line = _edited(code, editor)
    return None if line is None else "\n".join([*made, line])


def kept(code: str, otherwise: str) -> str:
    """How the statement `code` begins, for a general line in its place: "neg = ", "return "; else "`otherwise` = ".

    It need not parse: it may be one line of a long one. Of several statements nobody knows which is meant.
    """
    if ";" in code:
        return f"{otherwise} = "
    found = re.match(r"(return\b|[A-Za-z_][\w.]{0,80}\s*=(?!=))", code.strip(), re.ASCII)
    return f"{found[0].rstrip('= ')}{' ' if found[0] == 'return' else ' = '}" if found else f"{otherwise} = "


def _argument(op_type: str) -> int:
    """Place of the argument that matters in a call."""
    return FUNCTIONS[op_type].argument if op_type in FUNCTIONS else 0


def _parsed(code: str) -> ast.Module | None:
    try:
        tree = ast.parse(code.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    simple = all(isinstance(s, ast.Return | ast.Assign | ast.AugAssign | ast.Expr | ast.AnnAssign) for s in tree.body)
    return tree if tree.body and simple else None


def _edited(code: str, editor: _Editor) -> str | None:
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
    """What to look the guard up in: "keras.ops" and "K" as they are, "tf" for tf.math.log and what nobody knows."""
    text = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    return text if text in SPACES else "tf"


def _divides(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and not isinstance(node.right, ast.Constant)


def _is_whole(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and float(node.value).is_integer()


class _Editor(ast.NodeTransformer):
    edits = 0

    def _instead(self, source: str) -> ast.AST:
        self.edits += 1
        return ast.parse(source, mode="eval").body


class _Calls(_Editor):
    def __init__(self, names: tuple[str, ...], guard: Guard, argument: int = 0) -> None:
        self._names, self._guard, self._argument = names, guard, argument

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if _name(node) in self._names and len(node.args) > self._argument:
            guarded = self._guard(_namespace(node), ast.unparse(node.args[self._argument]))
            node.args[self._argument] = ast.parse(guarded, mode="eval").body
            self.edits += 1
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Also x ** 0.5 is a power as tf.pow(x, 0.5) is; whole exponents take any x."""
        self.generic_visit(node)
        if "pow" in self._names and isinstance(node.op, ast.Pow) and not _is_whole(node.right):
            node.left = ast.parse(self._guard("tf", ast.unparse(node.left)), mode="eval").body
            self.edits += 1
        return node


class _Whole(_Editor):
    """Calls put into an expression as a whole: (source of function, of what is before the argument that matters, of
    that, of the rest) -> source.
    """

    def __init__(self, names: tuple[str, ...], around: Callable[[str, str, str, str], str], argument: int) -> None:
        self._names, self._around, self._argument = names, around, argument

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        at = self._argument
        if _name(node) not in self._names or len(node.args) <= at:
            return node
        before = "".join(f"{ast.unparse(a)}, " for a in node.args[:at])
        rest = "".join(f", {ast.unparse(a)}" for a in [*node.args[at + 1 :], *node.keywords])
        return self._instead(self._around(ast.unparse(node.func), before, ast.unparse(node.args[at]), rest))


class _Divisions(_Editor):
    def __init__(self, quotient: Callable[[str, str], str]) -> None:
        self._quotient = quotient

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not _divides(node):
            return node
        return self._instead(self._quotient(ast.unparse(node.left), ast.unparse(node.right)))


class _Roots(_Editor):
    """Norms and deviations, whose root is inside the library."""

    def __init__(self, epsilon: str) -> None:
        self._epsilon = epsilon

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name, known = _name(node), {k.arg for k in node.keywords} <= {"axis", "keepdims", "name"}
        if not node.args or not known or (name in ("norm", "euclidean_norm") and len(node.args) > 1):
            return node
        axes = "".join(f", {ast.unparse(a)}" for a in (*node.args[1:], *(k for k in node.keywords if k.arg != "name")))
        x = ast.unparse(node.args[0])
        if name in ("norm", "reduce_euclidean_norm"):
            return self._instead(f"tf.sqrt(tf.maximum(tf.reduce_sum(tf.square({x}){axes}), {self._epsilon}))")
        if name == "reduce_std":
            return self._instead(f"tf.sqrt(tf.maximum(tf.math.reduce_variance({x}{axes}), {self._epsilon}))")
        return node


class _Empty(_Editor):
    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if _name(node) not in self._names or len(node.args) != 1 or node.keywords:
            return node
        return self._instead(f"tf.where(tf.size({ast.unparse(node.args[0])}) > 0, {ast.unparse(node)}, 0.0)")
