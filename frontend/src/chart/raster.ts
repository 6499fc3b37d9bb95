/** Finite magnitudes to pixels: one colour per device pixel, largest magnitude first where cells share one. */
import { BINS } from "../model/decode";
import { BAD } from "../model/magnitude";
import { BLOCK_ROWS } from "../model/tiles";
import { span } from "../model/steps";
import type { Colors } from "./color";
import type { Geometry } from "./geometry";
import { type Source, binAt } from "./sources";

/** Of every pixel column: which source of the block paints it (-1: none), and with which bin. */
interface Columns {
  readonly source: Int16Array;
  readonly bin: Uint16Array;
}

function columnsOf(sources: readonly Source[], geometry: Geometry, width: number): Columns {
  const source = new Int16Array(width).fill(-1);
  const bin = new Uint16Array(width);
  let index = 0;
  for (let x = 0; x < width; x++) {
    const position = geometry.window.from + ((x + 0.5) / width) * span(geometry.window);
    while (index < sources.length && position >= sources[index]!.to) index++;
    const candidate = sources[index];
    if (!candidate || position < candidate.from) continue;
    source[x] = index;
    bin[x] = binAt(candidate.tile, position);
  }
  return { source, bin };
}

/** What was measured, or was a little earlier and not again since. */
interface Line {
  readonly codes: Uint16Array;
  readonly held: Uint16Array;
}

/**
 * Paints the plot's area (width by height device pixels) into `pixels`; what was not measured stays transparent, but
 * for up to `hold` steps after a measurement it is painted in that one's paler colour: tensors that are measured in
 * turns would be a picket fence otherwise.
 */
export function rasterize(pixels: Uint32Array, width: number, height: number, geometry: Geometry, blocks: ReadonlyMap<number, readonly Source[]>, colors: Colors, hold: number): void {
  pixels.fill(0);
  const scale = height / geometry.plot.height;
  const rowHeight = geometry.rowHeight * scale;
  const scroll = geometry.scroll * scale;
  const columns = new Map<number, Columns>();
  const { codes, held }: Line = { codes: new Uint16Array(width), held: new Uint16Array(width) };
  let painted = "";
  for (let y = 0; y < height; y++) {
    const first = Math.floor((y + scroll) / rowHeight);
    if (first >= geometry.rows) break;
    // Where rows are lower than a pixel, several share it; otherwise the pixel belongs to the row at its top.
    const last = rowHeight >= 1 ? first : Math.min(geometry.rows - 1, Math.ceil((y + 1 + scroll) / rowHeight) - 1);
    const line = y * width;
    const name = `${first}-${last}`;
    if (name === painted) {
      pixels.copyWithin(line, line - width, line);
      continue;
    }
    painted = name;
    codes.fill(0);
    held.fill(0);
    for (let row = first; row <= last; row++) {
      const block = Math.floor(row / BLOCK_ROWS);
      const sources = blocks.get(block);
      if (!sources) continue;
      let map = columns.get(block);
      if (!map) columns.set(block, (map = columnsOf(sources, geometry, width)));
      mergeRow({ codes, held }, sources, map, row - block * BLOCK_ROWS, hold);
    }
    for (let x = 0; x < width; x++) pixels[line + x] = codes[x] ? colors.own[codes[x]!]! : held[x] ? colors.held[held[x]!]! : 0;
  }
}

function mergeRow({ codes, held }: Line, sources: readonly Source[], map: Columns, row: number, hold: number): void {
  let recent = 0;
  let until = 0;
  for (let x = 0; x < codes.length; ) {
    const source = map.source[x]!;
    let end = x + 1;
    while (end < codes.length && map.source[end] === source) end++;
    const tile = sources[source]?.tile;
    if (tile && row < tile.rows) {
      const width = 2 ** tile.level;
      for (let at = x; at < end; at++) {
        const bin = map.bin[at]!;
        const code = tile.high[row * BINS + bin]!;
        if (code > codes[at]!) codes[at] = code;
        if (width >= hold) continue; // a bin is longer than anything is held
        const step = tile.firstStep + bin * width;
        if (code > 0) {
          recent = code;
          until = step + width + hold;
        } else if (tile.state[row * BINS + bin]! & BAD || step >= until) recent = 0;
        else if (recent > held[at]!) held[at] = recent;
      }
    }
    x = end;
  }
}
