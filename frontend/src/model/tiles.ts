/** Which tiles a view needs: level of detail, blocks of rows, and their order of urgency. */
import { BINS } from "./decode";
import { type Window, span, stepsInside } from "./steps";
import type { Kind } from "./types";

/** Rows are fetched in blocks, so that a thousand layers do not need one huge answer. */
export const BLOCK_ROWS = 256;
export const MAX_LEVEL = 40;

export interface TileKey {
  readonly run: string;
  readonly attempt: number | null;
  readonly kind: Kind;
  readonly level: number;
  readonly tile: number;
  readonly block: number;
}

/** What all tiles of a view have in common. */
export type Layered = Pick<TileKey, "run" | "attempt" | "kind">;

export function keyText(key: TileKey): string {
  return `${key.attempt}/${key.kind}/${key.level}/${key.tile}/${key.block}/${key.run}`;
}

/** The finest level whose bins are at least `narrowest` pixels wide in a plot of `width` pixels. */
export function levelFor(window: Window, width: number, narrowest: number): number {
  const bins = Math.max(1, width / narrowest);
  const level = Math.ceil(Math.log2(span(window) / bins));
  return Math.min(MAX_LEVEL, Math.max(0, level));
}

/** The level at which the whole of a run fits in the bins of one tile (which may still straddle two). */
export function overviewLevel(bounds: Window): number {
  return levelFor(bounds, BINS, 1);
}

export function tilesOf(window: Window, level: number): readonly number[] {
  const { first, last } = stepsInside(window);
  const steps = BINS * 2 ** level;
  const from = Math.floor(first / steps);
  const to = Math.floor(last / steps);
  return Array.from({ length: to - from + 1 }, (_, i) => from + i);
}

export function blocksOf(firstRow: number, lastRow: number): readonly number[] {
  const from = Math.floor(firstRow / BLOCK_ROWS);
  const to = Math.floor(lastRow / BLOCK_ROWS);
  return Array.from({ length: to - from + 1 }, (_, i) => from + i);
}

/**
 * Every tile that a view of these rows needs: the overview of all rows first, since it stands in for whatever is not
 * there yet, then the tiles of the view from its end backwards, where a run that is live or dead is looked at first.
 */
export function wanted(of: Layered, window: Window, bounds: Window, level: number, rows: number, visible: { readonly first: number; readonly last: number }): TileKey[] {
  if (rows === 0) return [];
  const keys: TileKey[] = [];
  const top = overviewLevel(bounds);
  for (const block of blocksOf(0, rows - 1)) for (const tile of tilesOf(bounds, top)) keys.push({ ...of, level: top, tile, block });
  if (level === top) return keys;
  for (const tile of [...tilesOf(window, level)].reverse())
    for (const block of blocksOf(visible.first, visible.last)) keys.push({ ...of, level, tile, block });
  return keys;
}
