/** Which magnitudes the colour ramp spans: the bulk of what is in view, and some of what sticks out. */
import { BINS } from "../model/decode";
import { FIRST_FINITE, LAST_CODE, decadesOf } from "../model/magnitude";
import type { Decades } from "./color";
import { type Source, binAt } from "./sources";

/** How far beyond the bulk the ramp goes, in decades. An explosion to 1e38 must not bleach all that came before it. */
const REACH = 4;

/**
 * Whole decades, so that the ramp does not change with every step of a pan, and at least two of them, or the noise
 * of a constant norm would look like news.
 */
export function decadesIn(sources: readonly Source[]): Decades {
  const histogram = new Uint32Array(LAST_CODE + 1);
  let count = 0;
  for (const { tile, from, to } of sources) {
    const [first, last] = [binAt(tile, from), binAt(tile, to - 1e-6)];
    for (let row = 0; row < tile.rows; row++) {
      for (let at = row * BINS + first; at <= row * BINS + last; at++) {
        const code = tile.high[at]!;
        if (code < FIRST_FINITE) continue;
        histogram[code]!++;
        count++;
      }
    }
  }
  if (count === 0) return { low: -2, high: 1 };
  const [least, low, high, most] = quantiles(histogram, count, [0.001, 0.04, 0.96, 0.999]);
  const bottom = Math.floor(Math.max(least!, low! - REACH));
  const top = Math.ceil(Math.min(most!, high! + REACH));
  if (top - bottom >= 2) return { low: bottom, high: top };
  return (low! + high!) / 2 - bottom < 0.5 ? { low: bottom - 1, high: bottom + 1 } : { low: bottom, high: bottom + 2 };
}

/** log10 of the magnitudes below which the given shares (ascending) of all counted cells lie. */
function quantiles(histogram: Uint32Array, count: number, shares: readonly number[]): number[] {
  const found: number[] = [];
  let seen = 0;
  for (let code = FIRST_FINITE; code <= LAST_CODE && found.length < shares.length; code++) {
    seen += histogram[code]!;
    while (found.length < shares.length && seen > shares[found.length]! * (count - 1)) found.push(decadesOf(code));
  }
  return found;
}
