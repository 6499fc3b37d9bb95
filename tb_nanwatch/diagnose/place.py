"""The operation at the origin in words: what it is, where in the program, what went in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.operation import Operation, code_of, extent, is_library
from tb_nanwatch.format.records import Counts, OperandStats, Origin

OPERANDS_TOLD: Final = 3
LONGEST_WHY: Final = 300  # characters of the replay's own words
LIBRARY_DEPTH: Final = 3  # parts of a library's path that tell which it is


def what(origin: Origin, op: Operation) -> str:
    """The op as the subject of a sentence: "the gradient of `Sqrt`", "`MatMul`"."""
    if op.backward and not op.through_where:
        if op.forward_known:
            return f"the gradient of `{words.printable(op.forward)}`"
        return f"a gradient's `{words.printable(op.name)}`"
    return f"`{words.printable(origin.op_type)}`"


def line(origin: Origin, replay: Mapping[str, Any]) -> str:
    """Where: " at train.py:34 (train_step)" in the user's program; else the layer, and the program's line that leads
    to it: " in layer hidden_4, called from train.py:60,"; "" if neither is known.
    """
    source = origin.source
    if source is not None and source.file and not is_library(source.file):
        named = source.function and source.function != "<module>"
        function = f" ({words.printable(source.function)})" if named else ""
        return f" at {words.file_name(source.file)}:{source.line}{function}"
    layer = f" in layer {words.printable(origin.layer)}" if origin.layer else ""
    caller = calling(origin, replay)
    if not caller:
        return layer
    return (
        f"{layer}, called from {words.file_name(caller[0])}:{caller[1]},"
        if layer
        else (f" called from {words.file_name(caller[0])}:{caller[1]}")
    )


def calling(origin: Origin, replay: Mapping[str, Any]) -> tuple[str, int] | None:
    """File and line of the program that led to an op of a library, which the replay leaves in the library's place."""
    if origin.source is None or not is_library(origin.source.file):
        return None
    library = replay.get("library", {})
    file, number = library.get("file"), library.get("line")
    known = isinstance(file, str) and file and isinstance(number, int) and not is_library(file)
    return (file, number) if known else None


def became(counts: Counts) -> str:
    """What its output was: "NaN", "+Inf and -Inf"; "not finite" where nobody counted."""
    kinds = (("NaN", counts.nan), ("+Inf", counts.pos_inf), ("-Inf", counts.neg_inf))
    return words.listing([word for word, number in kinds if number]) or "not finite"


def source_sentence(origin: Origin, replay: Mapping[str, Any]) -> Iterator[str]:
    """The line with its code; the library's beside it, or alone where the program's own is not known."""
    source = origin.source
    if source is None or not source.file:
        return
    code = words.printable(source.code.strip(), words.LONGEST_CODE)
    code = code if "`" in code else f"`{code}`"
    if code_of(origin):
        yield f"The line is {words.printable(source.file)}:{source.line}: {code}."
    elif is_library(source.file):
        where = f"{library_path(source.file)}:{source.line}"
        caller = calling(origin, replay)
        if caller is None:
            yield f"No line of your own program computes it; in the library it is {where}: {code}."
        else:
            yield f"{words.printable(caller[0])}:{caller[1]} calls the library that computes it, at {where}: {code}."
    else:
        yield f"The line is {words.printable(source.file)}:{source.line}."


def library_path(path: str) -> str:
    """The end of a library's path, which says which file of which package."""
    inside = path.replace("\\", "/").rpartition("-packages/")[2]
    return words.printable("/".join(inside.split("/")[-LIBRARY_DEPTH:]))


def samples(origin: Origin) -> str:
    """Which samples of the batch the op failed for; "" where that is not known. Failing for all says nothing of any."""
    size = max((operand.shape[0] for operand in origin.inputs if operand.shape), default=0)
    return words.samples(origin.samples, size)


def operands(inputs: tuple[OperandStats, ...]) -> str:
    """What went in, as a sentence; "" without operands."""
    named = [o for o in inputs if "float" in o.dtype or not o.name.startswith("input ")]  # axes and shapes have no name
    if not named:
        return ""
    return f"It was given {words.listing([operand_text(operand) for operand in named[:OPERANDS_TOLD]])}."


def operand_text(operand: OperandStats) -> str:
    """One operand with its type, size, range and odd values."""
    odd = [words.count(n, noun) for n, noun in ((operand.zero, "zero"), (operand.negative, "negative value")) if n]
    odd += [f"{n:,} {noun}" for n, noun in ((operand.nan, "NaN"), (operand.inf, "infinite")) if n]
    parts = [words.printable(operand.dtype), extent(operand), *odd]
    return f"{words.printable(operand.name) or 'an input'} ({', '.join(parts)})"


def replay_sentence(replay: Mapping[str, Any]) -> str:
    """How sure the op is, or why there is none; "" where the replay simply reproduced it, or none was made."""
    outcome = str(replay.get("replay", ""))
    why = words.escaped(str(replay.get("why") or ""))[:LONGEST_WHY]
    if outcome == "reproduced under XLA only":
        return "Run op by op the step is finite: only XLA computes it so."
    if outcome == "refused":
        return "Run op by op, the operation refuses its input with an error; compiled, it makes NaN of it."
    if outcome in ("not reproduced", "not possible", "failed"):
        said = {
            "not reproduced": "The replay did not reproduce it",
            "not possible": "It could not be replayed",
            "failed": "The replay failed",
        }[outcome]
        return f"{said}{f': {why}' if why else ''}. So the layer is known, but not the operation."
    return f"It failed in the same way {why}." if outcome == "reproduced" and why else ""
