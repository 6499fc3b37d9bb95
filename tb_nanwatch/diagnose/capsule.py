"""What a capsule says of the failing step, in one document: batch in numbers, bad samples, what is kept, what not."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.diagnose.report import origin_entry
from tb_nanwatch.diagnose.strict import strict
from tb_nanwatch.errors import CorruptData
from tb_nanwatch.format.arrays import as_numbers
from tb_nanwatch.format.capsule import Opened, Part
from tb_nanwatch.stats import places

MOST_COLUMNS: Final = 32  # of a table that are told one by one
MOST_SAMPLES: Final = 3
MOST_VALUES: Final = 12  # of a sample
PICTURE: Final = (16, 48)  # lines and characters of a picture
RAMP: Final = " .:-=+*#%@"
SMALLEST_IMAGE: Final = 6  # pixels on a side


def describe(opened: Opened, path: str) -> dict[str, Any]:
    """The document, strictly JSON. Raises CorruptData where an array of the batch is damaged."""
    capsule = opened.capsule
    document = {
        "format_version": 1,
        "capsule": path,
        "step": capsule.step,
        "detected_step": capsule.detected_step,
        "last_finite_step": capsule.last_finite_step if capsule.last_finite_step >= 0 else None,
        "wall_time": capsule.wall_time,
        "entry_point": capsule.entry_point,
        "under_xla": capsule.under_xla,
        "versions": dict(capsule.versions),
        "origin": origin_entry(capsule.origin),
        "replay": dict(capsule.replay),
        "source": [vars(excerpt) for excerpt in capsule.source],
        "batch": [_part(part, opened, capsule.origin.samples) for part in capsule.batch.leaves()],
        "state": {
            "variables": len(capsule.state),
            "weights": sum(kept.watched for kept in capsule.state),
            "bytes": capsule.state_bytes,
        },
        "random": sorted(capsule.random),
        "left_out": list(capsule.left_out),
    }
    return dict(strict(document))


def _part(part: Part, opened: Opened, samples: tuple[int, ...]) -> dict[str, Any]:
    told: dict[str, Any] = {"name": part.name, "kind": part.kind}
    if part.kind == "value":
        return told | {"value": part.value}
    if part.kind == "left_out":
        return told | {"what": part.value}
    told |= {"dtype": part.dtype, "shape": list(part.shape)}
    inner = {"ragged": 0, "sparse": 1}.get(part.kind)
    if inner is not None:  # numbers lie in a part of their own, and their samples elsewhere
        if part.items[inner].kind != "array":
            return told | {"dtype": part.items[inner].dtype}
        array = _numbers(part.items[inner], opened)
        return told | {"dtype": part.items[inner].dtype} | ({} if array is None else _range(array))
    array = _numbers(part, opened) if part.kind == "array" else None
    if array is None:
        return told
    chosen = [n for n in (samples or places.bad_samples(array, MOST_SAMPLES)) if array.ndim and n < len(array)]
    return told | _range(array) | _columns(array) | {"samples": [_sample(array, n) for n in chosen[:MOST_SAMPLES]]}


def _numbers(part: Part, opened: Opened) -> NDArray[Any] | None:
    if opened.batch is None or len(part.arrays) != 1:
        raise CorruptData(f"{part.name} of the batch has no array")
    array = as_numbers(opened.batch.read(part.arrays[0], part.dtype, part.shape), part.dtype)
    return None if array is None or array.dtype.kind == "c" else array


def _range(array: NDArray[Any]) -> dict[str, Any]:
    finite = array[np.isfinite(array)]
    return {
        "nan": int(np.isnan(array).sum()),
        "pos_inf": int(np.isposinf(array).sum()),
        "neg_inf": int(np.isneginf(array).sum()),
        "zero": int((array == 0).sum()),
        "min": float(finite.min()) if finite.size else None,
        "max": float(finite.max()) if finite.size else None,
    }


def _columns(array: NDArray[Any]) -> dict[str, Any]:
    """A table column by column, those with something bad first; of other arrays the places that are bad."""
    bad = places.bad_features(array, MOST_COLUMNS)
    told: dict[str, Any] = {"features": bad} if bad else {}
    if array.ndim == 2 and array.shape[1] > 1:
        first = [place[0] for place in bad]
        order = [*first, *(n for n in range(min(array.shape[1], 2 * MOST_COLUMNS)) if n not in first)]
        told["columns"] = [{"index": n, **_range(array[:, n])} for n in order[:MOST_COLUMNS]]
    return told


def _sample(array: NDArray[Any], number: int) -> dict[str, Any]:
    sample = array[number]
    told: dict[str, Any] = {
        "index": number,
        "values": [float(v) for v in sample.reshape(-1)[:MOST_VALUES]],
        **_range(sample),
    }
    return told | ({"picture": picture(sample)} if _is_image(sample) else {})


def _is_image(sample: NDArray[Any]) -> bool:
    if sample.ndim == 3 and sample.shape[2] not in (1, 3, 4):
        return False
    return sample.ndim in (2, 3) and min(sample.shape[:2]) >= SMALLEST_IMAGE


def picture(sample: NDArray[Any]) -> list[str]:
    """A picture in letters: darker is larger, ! where something is not finite.

    sample: float64[height, width] or float64[height, width, channels].
    """
    flat = sample if sample.ndim == 2 else sample.mean(axis=2)
    height, width = (min(most, size) for most, size in zip(PICTURE, flat.shape, strict=True))
    finite = flat[np.isfinite(flat)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    lines = []
    for rows in np.array_split(flat, height, axis=0):
        cells = np.array_split(rows, width, axis=1)
        lines.append("".join(_letter(cell, low, high) for cell in cells))
    return lines


def _letter(cell: NDArray[Any], low: float, high: float) -> str:
    if not np.isfinite(cell).all():
        return "!"
    share = (float(cell.mean()) - low) / (high - low) if high > low else 0.0
    return RAMP[min(int(share * len(RAMP)), len(RAMP) - 1)] if np.isfinite(share) else "?"
