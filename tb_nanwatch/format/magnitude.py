"""Sixteen-bit codes for the magnitude of a tensor: a logarithm, or a state.

A code below 16 is a state, one from 16 up a finite magnitude:

    0       not measured
    1       exactly zero
    2..8    not finite: 1 + bits, with NAN = 1, POS_INF = 2, NEG_INF = 4
    9       not finite, kind unknown
    16...   finite: 16 + round(72 * (log2(x) + 451))

72 codes an octave keep the relative error below 2**(1/144) - 1 = 0.483 %. The codes reach from 2**-451 to
2**459 (1e-135 to 1e138); smaller and larger float64 magnitudes are held at those ends.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

NOT_MEASURED: Final = 0
ZERO: Final = 1
NONFINITE_UNKNOWN: Final = 9
FIRST_FINITE: Final = 16
LAST: Final = 65535

NAN: Final = 1
POS_INF: Final = 2
NEG_INF: Final = 4
UNKNOWN: Final = 8  # not finite, but nobody counted what

CODES_PER_OCTAVE: Final = 72
LOWEST_OCTAVE: Final = -451
RELATIVE_ERROR: Final = 2.0 ** (1 / 144) - 1

Codes = NDArray[np.uint16]


def encode(values: ArrayLike) -> Codes:
    """Codes of magnitudes (any shape, float, >= 0); NaN and infinities become states, never finite codes."""
    values = np.asarray(values, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.rint(CODES_PER_OCTAVE * (np.log2(np.abs(values)) - LOWEST_OCTAVE)) + FIRST_FINITE
    finite = np.isfinite(scaled)
    codes = np.clip(np.where(finite, scaled, FIRST_FINITE), FIRST_FINITE, LAST).astype(np.uint16)
    codes = np.where(values == 0, ZERO, codes)
    codes = np.where(np.isnan(values), 1 + NAN, codes)
    codes = np.where(np.isposinf(values), 1 + POS_INF, codes)
    return np.where(np.isneginf(values), 1 + NEG_INF, codes).astype(np.uint16)


def decode(codes: ArrayLike) -> NDArray[np.float64]:
    """Magnitudes of codes: NaN for not measured and for every state with NaN or unknown, infinities as they are."""
    codes = np.asarray(codes, dtype=np.uint16)
    values = np.exp2((codes.astype(np.float64) - FIRST_FINITE) / CODES_PER_OCTAVE + LOWEST_OCTAVE)
    table = np.full(FIRST_FINITE, np.nan)
    table[ZERO] = 0.0
    table[1 + POS_INF] = np.inf
    table[1 + NEG_INF] = -np.inf
    table[1 + POS_INF + NEG_INF] = np.inf
    return np.where(codes < FIRST_FINITE, table[np.minimum(codes, FIRST_FINITE - 1)], values)


def from_bits(bits: ArrayLike) -> Codes:
    """Codes of non-finite states from state bits (NAN | POS_INF | NEG_INF, or UNKNOWN alone)."""
    bits = np.asarray(bits, dtype=np.uint16)
    known = bits & (NAN | POS_INF | NEG_INF)
    return np.where(known > 0, 1 + known, NONFINITE_UNKNOWN).astype(np.uint16)


def to_bits(codes: ArrayLike) -> NDArray[np.uint8]:
    """State bits of codes; 0 for everything finite or not measured."""
    codes = np.asarray(codes, dtype=np.uint16)
    table = np.zeros(FIRST_FINITE, np.uint8)
    table[2:9] = np.arange(1, 8)
    table[NONFINITE_UNKNOWN] = UNKNOWN
    return table[np.minimum(codes, FIRST_FINITE - 1)] * (codes < FIRST_FINITE).astype(np.uint8)


def is_finite(codes: ArrayLike) -> NDArray[np.bool_]:
    """True where a code stands for a measured finite magnitude, zero included."""
    codes = np.asarray(codes, dtype=np.uint16)
    return (codes == ZERO) | (codes >= FIRST_FINITE)
