"""A page of text, as wide as the terminal; for a pipe or a file of one width, without colours and padding."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Final, TextIO

from rich.console import Console

PIPED_WIDTH: Final = 120


def write(out: TextIO, page: Callable[[Console], None]) -> None:
    """Let `page` print to `out`, in colours only if that is a terminal. No markup in what it prints counts."""
    console = Console(file=out, markup=False, emoji=False, highlight=False)
    if console.is_terminal:
        page(console)
        return
    piped = io.StringIO()
    page(Console(file=piped, markup=False, emoji=False, highlight=False, width=PIPED_WIDTH))
    out.write("".join(f"{line.rstrip()}\n" for line in piped.getvalue().splitlines()))  # tables are padded with blanks
