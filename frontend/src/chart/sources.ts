/** From the tiles at hand, the best for every part of a view: the level asked for, or what stands in for it. */
import { BINS, type Tile } from "../model/decode";
import type { Window } from "../model/steps";
import { BLOCK_ROWS, tilesOf } from "../model/tiles";

/** A tile and the stretch of the view that it paints. */
export interface Source {
  readonly tile: Tile;
  readonly from: number;
  readonly to: number;
}

export type Lookup = (level: number, tile: number, block: number) => Tile | undefined;

/** Sources of one block of rows, in step order; stretches without any tile are left out. */
export function sourcesOf(lookup: Lookup, window: Window, level: number, coarsest: number, block: number): Source[] {
  const sources: Source[] = [];
  for (const index of tilesOf(window, level)) {
    const size = BINS * 2 ** level;
    const stretch = { from: Math.max(window.from, index * size), to: Math.min(window.to, (index + 1) * size) };
    for (let up = level; up <= Math.max(level, coarsest); up++) {
      const tile = lookup(up, Math.floor(index / 2 ** (up - level)), block);
      if (!tile) continue;
      sources.push({ tile, ...stretch });
      break;
    }
  }
  return sources;
}

export function binAt(tile: Tile, position: number): number {
  return Math.min(BINS - 1, Math.max(0, Math.floor((position - tile.firstStep) / 2 ** tile.level)));
}

/** One cell of the heatmap, read back. */
export interface Bin {
  readonly first: number;
  readonly last: number;
  readonly low: number;
  readonly high: number;
  readonly state: number;
}

export function readBin(blocks: ReadonlyMap<number, readonly Source[]>, row: number, position: number): Bin | undefined {
  const source = blocks.get(Math.floor(row / BLOCK_ROWS))?.find((candidate) => position >= candidate.from && position < candidate.to);
  const inBlock = row % BLOCK_ROWS;
  if (!source || inBlock >= source.tile.rows) return undefined;
  const { tile } = source;
  const bin = binAt(tile, position);
  const at = inBlock * BINS + bin;
  const first = tile.firstStep + bin * 2 ** tile.level;
  return { first, last: first + 2 ** tile.level - 1, low: tile.low[at] ?? 0, high: tile.high[at] ?? 0, state: tile.state[at] ?? 0 };
}
