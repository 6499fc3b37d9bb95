"""The report as Markdown, for an issue or a notebook."""

from __future__ import annotations

import re
from typing import TextIO

from tb_nanwatch.cli.document import Document
from tb_nanwatch.cli.render import cells
from tb_nanwatch.cli.render.again import again
from tb_nanwatch.diagnose import PostMortem, words


def render(document: Document, out: TextIO) -> None:
    """Write the report; everything that Markdown or HTML would interpret in a name is escaped."""
    parts = [f"# NaN Watch report: {_plain(words.printable(document.logdir))}"]
    parts += _table("Runs", cells.overview(document), "##")
    for found in document.runs:
        parts += _run(found, document)
    parts += _damage("Files that belong to no run", document.damage)
    out.write("\n\n".join(parts) + "\n")


def _run(found: PostMortem, document: Document) -> list[str]:
    parts = [
        f"## {_plain(words.printable(document.title(found)))}: {found.status}",
        f"**{_prose(found.verdict.headline)}**",
    ]
    parts += [_prose(paragraph) for paragraph in found.verdict.paragraphs]
    parts += _table("Incidents", cells.incidents(found))
    parts += _table("What made the first bad value", cells.origin(found))
    parts += _table("What went into it", cells.operands(found))
    parts += _table("Why", cells.causes(found))
    parts += _table("How the first one spread", cells.spread(found))
    if found.before is not None:
        parts += _table(f"The steps around step {found.before.first_bad:,}", cells.before(found.before))
    parts += _table("Findings", cells.findings(found))
    for name, why, snippet in cells.remedies(found):
        parts += [f"To try: **{_plain(name)}**. {_prose(why)}", _fenced(snippet)]
    for capsule in again(found, document.logdir):
        parts += [f"Step {capsule.step:,} is kept as it began:", _fenced("\n".join(capsule.lines), "sh")]
    return parts + _table("Notes", cells.notes(found)) + _damage("Damage", found.run.damage)


def _table(title: str, content: cells.Table, level: str = "###") -> list[str]:
    header, rows = content
    if not rows:
        return []
    first, *rest = ([_cell(cell) for cell in row] for row in (header, *rows))
    lines = [first, ["---"] * len(first), *rest]
    return [f"{level} {title}", "\n".join(f"| {' | '.join(line)} |" for line in lines)]


def _fenced(snippet: str, language: str = "python") -> str:
    """Code in a fence that is longer than any in it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", snippet)), default=0))
    return f"{fence}{language}\n{snippet}\n{fence}"


def _damage(title: str, damage: tuple[str, ...]) -> list[str]:
    return [f"### {title}", "\n".join(f"- {_plain(words.printable(line))}" for line in damage)] if damage else []


def _plain(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|~&!$])", r"\\\1", text)


def _prose(text: str, bar: str = "|") -> str:
    """A sentence with what stands between backticks left as code, in which only a backtick has a meaning."""
    parts = re.split("`([^`]+)`", text)
    return "".join(f"`{p.replace('|', bar)}`" if n % 2 else _plain(p) for n, p in enumerate(parts))


def _cell(text: str) -> str:
    """The same in a table, where a bar ends a cell even in code."""
    return _prose(text, bar=r"\|")
