"""A capsule for a terminal."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any, Final, TextIO

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.words import magnitude, printable

MOST_COLUMNS: Final = 12
Document = Mapping[str, Any]


def render(document: Document, out: TextIO) -> None:
    """Write what the capsule holds."""
    out.writelines(f"{line}\n".lstrip("\r") for line in _lines(document))


def render_again(document: Document, out: TextIO) -> None:
    """Write what became of the step when it ran again."""
    out.writelines(f"{line}\n" for line in _verdict(document["again"]))


def _lines(document: Document) -> Iterator[str]:
    origin = document["origin"]
    when = dt.datetime.fromtimestamp(min(max(document["wall_time"], 0), 4e9), dt.timezone.utc)
    yield f"Step {document['step']:,}, {when:%Y-%m-%d %H:%M:%S} UTC"
    yield f"  {_where(origin)}"
    yield from _source(document["source"])
    yield from _inputs(origin["inputs"])
    yield from _fed_by(document["replay"])
    yield ""
    yield "Batch:"
    for part in document["batch"]:
        yield from _part(part)
    yield ""
    yield "In the capsule:"
    state = document["state"]
    size = words.count(state["bytes"], "byte")
    yield f"  {words.count(state['variables'], 'variable')} ({state['weights']:,} of them weights), {size}"
    yield f"  random states of {printable(', '.join(document['random']) or 'nothing')}"
    yield f"  {printable(', '.join(f'{name} {version}' for name, version in document['versions'].items()))}"
    yield from (f"  not: {printable(text)}" for text in document["left_out"])


def _where(origin: Mapping[str, Any]) -> str:
    place = f" in {printable(origin['layer'])}" if origin["layer"] else ""
    output = origin["output"]
    bad = ", ".join(
        f"{output[key]:,} {word}"
        for key, word in (("nan", "NaN"), ("pos_inf", "+Inf"), ("neg_inf", "-Inf"))
        if output[key]
    )
    made = f" made {bad} of {words.count(output['size'], 'element')}" if bad else ""
    what = printable(origin["op_type"] or origin["tensor"] or "the step")
    samples = words.samples(origin["samples"])
    return f"phase {origin['phase']}: {what}{place}{made}{f', {samples}' if samples else ''}"


def _source(excerpts: list[Mapping[str, Any]]) -> Iterator[str]:
    for excerpt in excerpts:
        yield ""
        yield f"{printable(excerpt['file'])}:{excerpt['line']}, in {printable(excerpt['function'])}"
        for number, text in enumerate(excerpt["lines"], excerpt["first"]):
            yield f"{'>' if number == excerpt['line'] else ' '} {number:5} {printable(text)}"


def _inputs(operands: list[Mapping[str, Any]]) -> Iterator[str]:
    if operands:
        yield ""
        yield "Its inputs:"
    for operand in operands:
        shape = "x".join(str(d) for d in operand["shape"]) or "scalar"
        keys = (("nan", "NaN"), ("inf", "Inf"), ("zero", "zero"), ("negative", "negative"))
        counts = [f"{operand[key]:,} {word}" for key, word in keys if operand[key]]
        span = f"{_number(operand['min'])} to {_number(operand['max'])}"
        about = ", ".join([f"{printable(operand['dtype'])} {shape}", span, *counts])
        yield f"  {printable(operand['name'])}: {about}"


def _fed_by(replay: Mapping[str, Any]) -> Iterator[str]:
    fed = replay.get("fed_by")
    if not isinstance(fed, dict):
        return
    for kind in ("inputs", "layers", "variables"):
        names = fed.get(kind)
        if isinstance(names, list) and names:
            yield f"  fed by the {kind} {words.listing([printable(str(name)) for name in names], 6)}"


def _part(part: Mapping[str, Any]) -> Iterator[str]:
    name = printable(part["name"] or "it")
    if "value" in part:
        yield f"  {name}: {printable(str(part['value']))}"
        return
    if "what" in part:
        yield f"  {name}: not kept ({printable(str(part['what']))})"
        return
    shape = "x".join(str(d) for d in part["shape"]) or "scalar"
    yield f"  {name}: {printable(part['dtype'])} {shape}{_range(part)}"
    if part.get("features"):
        yield f"    not finite at {words.listing([str(place) for place in part['features']], 8)} of a sample"
    for column in part.get("columns", ())[:MOST_COLUMNS]:
        yield f"    column {column['index']}{_range(column)}"
    for sample in part.get("samples", ()):
        values = " ".join(_number(value) for value in sample["values"])
        yield f"    sample {sample['index']}: {values}{_range(sample)}"
        yield from (f"      {line}" for line in sample.get("picture", ()))


def _range(about: Mapping[str, Any]) -> str:
    if about.get("nan") is None:
        return ""
    keys = (("nan", "NaN"), ("pos_inf", "+Inf"), ("neg_inf", "-Inf"), ("zero", "zero"))
    counts = [f"{about[key]:,} {word}" for key, word in keys if about[key]]
    span = "nothing finite" if about["min"] is None else f"{_number(about['min'])} to {_number(about['max'])}"
    return f", {', '.join([span, *counts])}"


def _verdict(again: Mapping[str, Any]) -> Iterator[str]:
    loss = "" if again["loss"] is None else f": loss {_number(again['loss'])}"
    if again["outcome"] == "finite":
        yield f"finite now{loss}"
    elif again["outcome"] == "no verdict":
        yield f"no verdict{loss}"
    else:
        yield f"still not finite{loss}{' (only as it is compiled)' if again['how'] == 'compiled' else ''}"
    if again["origin"] is not None:
        source = again["origin"]["source"]
        yield f"  {_where(again['origin'])}"
        if source is not None:
            yield f"  {printable(source['file'])}:{source['line']}, in {printable(source['function'])}"
            yield f"    {printable(source['code'])}"
        yield from _inputs(again["origin"]["inputs"])
    if again["why"]:
        yield f"  {printable(again['why'])}"
    yield f"  {words.count(again['put_in'], 'variable')} set as they were before the step"
    for names, text in (
        (again["missing"], "not in the program any more"),
        (again["unset"], "left as the program makes them"),
    ):
        if names:
            yield f"  {text}: {words.listing([printable(name) for name in names], 6)}"
    yield from (f"  {words.escaped(note)}" for note in again["notes"])


def _number(value: Any) -> str:
    return printable(value) if isinstance(value, str) else magnitude(float(value))
