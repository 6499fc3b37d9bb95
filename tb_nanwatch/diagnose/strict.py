"""Strict JSON: a number that JSON cannot hold becomes a string."""

from __future__ import annotations

import json
import math
from typing import Any


def strict(value: Any) -> Any:
    """`value` with non-finite floats as "NaN", "Infinity", "-Infinity"; tuples as lists, keys as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    return value


def dumps(value: Any, indent: int | None = None) -> str:
    """`value` as strict JSON, plain ASCII, so that no name from a log can do harm where it is shown."""
    return json.dumps(strict(value), indent=indent, allow_nan=False)
