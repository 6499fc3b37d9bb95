"""Exit codes; 1 and 2 mean what they mean everywhere."""

from __future__ import annotations

from typing import Final

HEALTHY: Final = 0
FAILURE: Final = 1
USAGE: Final = 2
WARNINGS: Final = 3
INCIDENT: Final = 4
NOTHING_READABLE: Final = 5
INTERRUPTED: Final = 130  # 128 + SIGINT, as a shell counts
BROKEN_PIPE: Final = 141  # 128 + SIGPIPE

TEXT: Final = (
    "exit codes: 0 healthy, 3 warnings, damage or a mended run, 4 an incident, 5 nothing readable, 1 failure, "
    "2 wrong usage"
)
