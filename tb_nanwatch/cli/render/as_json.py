"""The report as strict JSON, for programs."""

from __future__ import annotations

from typing import TextIO

from tb_nanwatch.cli.document import Document
from tb_nanwatch.diagnose import report
from tb_nanwatch.diagnose.strict import dumps


def render(document: Document, out: TextIO) -> None:
    """Write the JSON report and nothing else."""
    out.write(dumps(report.document(document.logdir, [found.entry for found in document.runs]), indent=2) + "\n")
