"""The report as one HTML file that needs nothing else: to be mailed, attached, kept."""

from __future__ import annotations

from typing import TextIO

from jinja2 import Environment, PackageLoader

from tb_nanwatch.cli.document import Document
from tb_nanwatch.cli.render import cells
from tb_nanwatch.cli.render.again import again
from tb_nanwatch.diagnose import words


def render(document: Document, out: TextIO) -> None:
    """Write the page; every name is escaped by the template engine."""
    environment = Environment(
        loader=PackageLoader("tb_nanwatch.cli.render", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["printable"] = words.printable
    out.write(environment.get_template("report.html.j2").render(document=document, cells=cells, again=again))
