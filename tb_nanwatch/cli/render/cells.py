"""The tables that every readable format shows, as plain text cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tb_nanwatch.cli.document import Document
from tb_nanwatch.diagnose import PostMortem, outcome, place, words
from tb_nanwatch.diagnose.before import Before, Line
from tb_nanwatch.diagnose.headline import OPERATED
from tb_nanwatch.diagnose.operation import is_library

MOST_ROWS: Final = 20  # of incidents and of spread; the JSON holds them all
BARS: Final = "▁▂▃▄▅▆▇█"

Table = tuple[Sequence[str], Sequence[Sequence[str]]]


def overview(document: Document) -> Table:
    """Header and rows, one per run; no rows where there is only one."""
    rows = [
        (words.printable(document.title(f)), f.status, f"{f.run.steps:,}", f.verdict.headline) for f in document.runs
    ]
    return ("run", "status", "steps", "verdict"), rows if len(rows) > 1 else []


def incidents(found: PostMortem) -> Table:
    """Header and rows, one per incident."""
    header = ("first step", "last step", "ended", "phase", "first bad tensor", "NaN", "+Inf", "-Inf", "of", "cause")
    return header, [_incident(found, number) for number in range(len(found.entry["incidents"][:MOST_ROWS]))]


def _incident(found: PostMortem, number: int) -> tuple[str, ...]:
    incident: dict[str, Any] = found.entry["incidents"][number]
    origin, output = incident["origin"], incident["origin"]["output"]
    last = incident["last_step"]
    return (
        f"{incident['first_step']:,}",
        "-" if last is None else f"{last:,}",
        "recovered" if incident["recovered"] else "lasts" if last is None else "unrecovered",
        words.printable(origin["phase"]),
        words.printable(origin["tensor"] or origin["layer"] or "-"),
        *(f"{output[key]:,}" for key in ("nan", "pos_inf", "neg_inf")),
        f"{output['size']:,}" if output["size"] else "-",
        _cause(incident["cause"]["name"]),
    )


def _cause(name: str) -> str:
    return "not proven" if name == "none" else words.printable(name).replace("_", " ")


def spread(found: PostMortem) -> Table:
    """Header and rows of the first incident's spread, in order."""
    first = found.run.incidents[0].spread if found.run.incidents else ()
    rows = [
        (
            f"{s.order}",
            f"{s.step:,}",
            words.printable(s.phase),
            words.place(s.kind, s.tensor, s.layer),
            words.bad_elements(s.counts),
        )
        for s in sorted(first, key=lambda s: s.order)[:MOST_ROWS]
    ]
    return ("order", "step", "phase", "tensor", "bad elements"), rows


def origin(found: PostMortem) -> Table:
    """What made the first bad value of the first incident, fact by fact; no rows where only the tensor is known."""
    if not _made(found) or not found.run.incidents[0].origin.op_type:
        return ("", ""), []
    it, entry = found.run.incidents[0].origin, found.entry["incidents"][0]
    replay = entry["replay"] or {}
    source, library = it.source, replay.get("library") or {}
    library_file = words.printable(str(library.get("file", "")))
    facts = [
        ("operation", words.printable(it.op_type)),
        ("gradient of", words.printable(str(replay.get("forward_op") or ""))),
        ("layer", words.printable(it.layer)),
        ("line", f"{words.printable(source.file)}:{source.line}" if source and source.file else ""),
        ("function", words.printable(source.function) if source else ""),
        ("code", words.printable(source.code.strip(), words.LONGEST_CODE) if source else ""),
        (
            "in the library" if is_library(library_file) else "called from",
            f"{library_file}:{library.get('line', '')}" if library_file else "",
        ),
        ("output", words.bad_elements(it.output)),
        ("samples", place.samples(it).removeprefix("samples ").removeprefix("sample ")),
        ("replica", str(it.replica) if it.replica >= 0 else ""),
        ("known to", words.printable(it.precision)),
        ("replay", words.printable(str(replay.get("outcome") or ""))),
        ("error", words.printable(str(replay.get("error") or ""))),
    ]
    return ("where it began", ""), [fact for fact in facts if fact[1]]


def _made(found: PostMortem) -> bool:
    """Whether an operation made the first bad value: one that came in with the batch was only met by one."""
    return bool(found.run.incidents) and found.run.incidents[0].origin.phase in OPERATED


def operands(found: PostMortem) -> Table:
    """Header and rows of what went into that operation."""
    inputs = found.run.incidents[0].origin.inputs if _made(found) else ()
    rows = [
        (
            words.printable(o.name),
            words.printable(o.dtype),
            " x ".join(str(dim) for dim in o.shape) or "scalar",
            words.magnitude(o.min) if o.has_range else "-",
            words.magnitude(o.max) if o.has_range else "-",
            *(f"{count:,}" for count in (o.nan, o.inf, o.zero, o.negative)),
        )
        for o in inputs[:MOST_ROWS]
    ]
    return ("input", "dtype", "shape", "min", "max", "NaN", "Inf", "zero", "negative"), rows


def causes(found: PostMortem) -> Table:
    """Header and rows, one per cause of the first incident, likeliest first; a single one is told in the verdict."""
    if not found.entry["incidents"]:
        return ("cause", "confidence", "evidence"), []
    first = found.entry["incidents"][0]
    rows = [
        (_cause(c["name"]), f"{c['confidence']:.0%}", "; ".join(c["evidence"]))
        for c in (first["cause"], *first["other_causes"])
        if c["name"] != "none"
    ]
    return ("cause", "confidence", "evidence"), rows if len(rows) > 1 else []


def remedies(found: PostMortem) -> list[tuple[str, str, str]]:
    """Name, reason with what came of trying it, and lines to write: of the first incident, or else of the findings."""
    offered = (
        found.entry["incidents"][0]["remedies"] if found.entry["incidents"] else [r for a in found.advice for r in a]
    )
    return [
        (words.remedy(r["name"]), f"{r['why']} {outcome.tried(r['trial'])}".rstrip(), r["snippet"]) for r in offered
    ]


def before(table: Before) -> Table:
    """Header and rows, one per step; the first bad step is marked."""
    header = ("step", *(line.label for line in table.lines))
    rows = [
        (f"{step:,}{' ←' if step == table.first_bad else ''}", *(_number(line.values[i]) for line in table.lines))
        for i, step in enumerate(table.steps)
    ]
    return header, rows


def findings(found: PostMortem) -> Table:
    """Header and rows, one per finding."""
    rows = [
        (
            words.printable(f["rule"]).replace("_", " "),
            words.printable(f["severity"]),
            words.printable(f["tensor"]),
            words.span(f["first_step"], f["last_step"]),
            ", ".join(f["remedies"]).replace("_", " "),
        )
        for f in found.entry["findings"][:MOST_ROWS]
    ]
    return ("finding", "severity", "tensor", "steps", "remedies"), rows


def notes(found: PostMortem) -> Table:
    """Header and rows of what the recorder noted along the way."""
    rows = [(f"{n.step:,}", words.printable(n.kind), words.printable(n.text)) for n in found.run.notes[:MOST_ROWS]]
    return ("step", "note", "text"), rows


def spark(line: Line) -> str:
    """A row of bars on a log scale; ! where the value was not finite, a blank where it was not measured."""
    heights = line.heights
    return "".join(
        " " if h is None else "!" if h < 0 else BARS[min(int(h * len(BARS)), len(BARS) - 1)] for h in heights
    )


def _number(value: float | None) -> str:
    return "" if value is None else words.magnitude(value)
