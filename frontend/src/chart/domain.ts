/** Which magnitudes the colour ramp spans: the bulk of the run, and some of what sticks out. */
import type { Tile } from "../model/decode";
import { FIRST_FINITE, LAST_CODE, decadesOf } from "../model/magnitude";
import type { Decades } from "./color";

/** How far beyond the bulk the ramp goes, in decades. An explosion to 1e38 must not bleach all that came before it. */
const REACH = 4;
/** Never less than this, or the noise of a constant norm would look like news. */
const LEAST = 2;

export function decadesIn(tiles: readonly Tile[]): Decades {
  const histogram = new Uint32Array(LAST_CODE + 1);
  let count = 0;
  for (const tile of tiles) {
    for (const code of tile.high) {
      if (code < FIRST_FINITE) continue;
      histogram[code]!++;
      count++;
    }
  }
  if (count === 0) return { low: -3, high: 1 };
  const [least, low, high, most] = quantiles(histogram, count, [0.001, 0.04, 0.96, 0.999]);
  const range = { low: Math.max(least!, low! - REACH), high: Math.min(most!, high! + REACH) };
  const missing = Math.max(0, LEAST - (range.high - range.low)) / 2;
  return { low: range.low - missing, high: range.high + missing };
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
