"""Numbers, names and places as English says them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

from tb_nanwatch.format.records import Counts

LONGEST_NAME: Final = 120  # of a name in a sentence; names come from logs and may be anything
LONGEST_CODE: Final = 480  # of a statement


def printable(name: str, longest: int = LONGEST_NAME) -> str:
    """A name from a log with everything unprintable escaped, so that it cannot steer a terminal or break a line."""
    text = escaped(name)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def escaped(text: str) -> str:
    """Text of one line with everything unprintable escaped, in full length."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text)


#: Remedies whose names do not say what to do.
REMEDIES: Final = {
    "clip_predictions_or_from_logits": "clip predictions or use from_logits",
    "initializer": "choose another initializer",
    "mixed_precision_policy": "choose another mixed precision policy",
    "safe_where": "make the branch that where leaves out safe",
}


def remedy(name: str) -> str:
    """What a remedy is called where people read."""
    return REMEDIES.get(name, printable(name).replace("_", " "))


def quoted(name: str) -> str:
    """A name as it may stand in a line of Python that people paste; "..." for one that no program would use."""
    return name if re.fullmatch(r"[\w./:-]{1,80}", name, re.ASCII) else "..."


def file_name(path: str) -> str:
    """The last part of a path, whichever system it is from."""
    return printable(re.split(r"[\\/]", path)[-1])


def samples(numbers: Sequence[int], size: int = 0) -> str:
    """Samples of a batch: "sample 3", "samples 3, 6 and 9", "all 32 samples" of a known size; empty without any."""
    if not numbers:
        return ""
    if len(numbers) == size > 1 and max(numbers) < size:  # else the size is that of something else
        return f"all {size:,} samples"
    return f"{'sample' if len(numbers) == 1 else 'samples'} {listing([str(number) for number in numbers], 8)}"


def count(number: int, noun: str) -> str:
    """Number and noun: "1 step", "1,234 steps"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def magnitude(value: float) -> str:
    """Three digits, in the notation that is read fastest: 0.0123, 4.56, 1,230, 4.5e12, NaN, -Infinity."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "0"
    if 1000 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    if 1e-3 <= abs(value) < 1000:
        return f"{value:.3g}"
    digits, _, exponent = f"{value:.2e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}"


def span(first: int, last: int) -> str:
    """A range of steps, inclusive: "step 5" or "steps 5 to 9"."""
    return f"step {first:,}" if first == last else f"steps {first:,} to {last:,}"


def listing(items: Sequence[str], most: int = 4) -> str:
    """Items in a row: "a", "a and b", "a, b, c, d and 3 more"."""
    if len(items) > most:
        return f"{', '.join(items[:most])} and {len(items) - most:,} more"
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def bad_elements(counts: Counts) -> str:
    """What was counted: "128 of 4,096 elements NaN"; "NaN" for a scalar; empty if nothing was."""
    kinds = [("NaN", counts.nan), ("+Inf", counts.pos_inf), ("-Inf", counts.neg_inf)]
    seen = [(word, number) for word, number in kinds if number]
    if not seen:
        return ""
    if counts.size == 1:
        return seen[0][0]
    of = f" of {counts.size:,}" if counts.size else ""
    if len(seen) == 1:
        word, number = seen[0]
        if number == counts.size:
            return f"all {number:,} elements {word}"
        return f"{number:,}{of} elements {word}"
    return f"{counts.bad:,}{of} elements: {listing([f'{number:,} {word}' for word, number in seen])}"


def place(kind: str, tensor: str, layer: str = "") -> str:
    """Where a tensor sits, as the end of "first in ...": "the gradient of conv2d_3/kernel"."""
    name = printable(tensor) or printable(layer)
    if not name:
        return {"loss": "the loss", "input": "the input batch"}.get(kind, f"a tensor of kind {printable(kind)}")
    if kind == "activation":
        return f"the output of {printable(layer) or name.removesuffix('/output')}"
    if kind == "loss":
        return "the loss" if name == "loss" else f"the loss {name}"
    return {
        "input": f"the input {name}",
        "gradient": f"the gradient of {name}",
        "applied": f"the gradient applied to {name}",
        "update": f"the update of {name}",
        "weight": f"the weights {name}",
        "metric": f"the metric {name}",
    }.get(kind, name)
