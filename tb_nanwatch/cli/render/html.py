"""The report as one HTML file that needs nothing else: to be mailed, attached, kept."""

from __future__ import annotations

import re
from typing import TextIO

from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

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
    environment.filters["prose"] = _prose
    out.write(environment.get_template("report.html.j2").render(document=document, cells=cells, again=again))


def _prose(text: str) -> Markup:
    """A sentence with what stands between backticks set as code."""
    parts = re.split("`([^`]+)`", text)
    return Markup("").join(Markup("<code>{}</code>").format(p) if n % 2 else escape(p) for n, p in enumerate(parts))
