"""The report for a terminal."""

from __future__ import annotations

from typing import Final, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tb_nanwatch.cli.document import Document
from tb_nanwatch.cli.render import cells, page
from tb_nanwatch.cli.render.again import again
from tb_nanwatch.diagnose import PostMortem, words

STYLES: Final = {
    "incident": "bold red",
    "mended": "bold green",
    "warning": "bold yellow",
    "healthy": "bold green",
    "empty": "bold",
}


def render(document: Document, out: TextIO) -> None:
    """Write the report; colours only if `out` is a terminal. Names go in as Text, so no markup in them counts."""
    page.write(out, lambda console: _report(console, document))


def _report(console: Console, document: Document) -> None:
    _overview(console, document)
    for found in document.runs:
        _run(console, found, document)
    _damage(console, "Files that belong to no run", document.damage)
    if len(document.runs) > 1:
        console.rule(style="dim")
    _overview(console, document)  # once more: what stands last stays on the screen


def _overview(console: Console, document: Document) -> None:
    _table(console, words.printable(document.logdir), cells.overview(document))
    if len(document.runs) > 1:
        console.print()


def _run(console: Console, found: PostMortem, document: Document) -> None:
    style = STYLES.get(found.status, "bold")
    console.rule(
        Text.assemble(("run ", "dim"), words.printable(document.title(found)), " ", (found.status, style)),
        align="left",
    )
    console.print(Text(found.verdict.headline, style=style), soft_wrap=False)
    for paragraph in found.verdict.paragraphs:
        console.print()
        console.print(Text(paragraph))
    console.print()
    _table(console, "Incidents", cells.incidents(found))
    _table(console, "What made the first bad value", cells.origin(found))
    _table(console, "What went into it", cells.operands(found))
    _table(console, "Why", cells.causes(found))
    _table(console, "How the first one spread", cells.spread(found))
    if found.before is not None:
        _table(console, f"The steps around step {found.before.first_bad:,}", cells.before(found.before))
        for line in found.before.lines:
            console.print(Text(f"  {cells.spark(line)}  {line.label}", style="dim"))
        console.print()
    _table(console, "Findings", cells.findings(found))
    for name, why, snippet in cells.remedies(found):
        console.print(Text.assemble(("To try: ", "bold"), name, f". {why}"))
        for code in snippet.split("\n"):
            console.print(Text(f"    {code}", style="cyan"))
    for capsule in again(found, document.logdir):
        kept = Text.assemble(("Kept ", "bold"), f"step {capsule.step:,} as it began: {capsule.path}")
        console.print(kept, soft_wrap=True)
        for command in capsule.lines:
            console.print(Text(f"    {command}", style="cyan"), soft_wrap=True)
    _table(console, "Notes", cells.notes(found))
    _damage(console, "Damage", found.run.damage)


def _table(console: Console, title: str, content: cells.Table) -> None:
    header, rows = content
    if not rows:
        return
    table = Table(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in header:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _damage(console: Console, title: str, damage: tuple[str, ...]) -> None:
    if damage:
        console.print(Text(f"{title}:", style="yellow"))
        for line in damage:
            console.print(Text(f"  {words.printable(line)}"))
