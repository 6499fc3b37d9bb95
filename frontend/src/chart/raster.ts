/** Finite magnitudes to pixels: one colour per device pixel, largest magnitude first where cells share one. */
import { BINS } from "../model/decode";
import { BLOCK_ROWS } from "../model/tiles";
import { span } from "../model/steps";
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

/** Paints the plot's area (width by height device pixels) into `pixels`; what was not measured stays transparent. */
export function rasterize(pixels: Uint32Array, width: number, height: number, geometry: Geometry, blocks: ReadonlyMap<number, readonly Source[]>, colors: Uint32Array): void {
  pixels.fill(0);
  const scale = height / geometry.plot.height;
  const rowHeight = geometry.rowHeight * scale;
  const scroll = geometry.scroll * scale;
  const columns = new Map<number, Columns>();
  const codes = new Uint16Array(width);
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
    for (let row = first; row <= last; row++) {
      const block = Math.floor(row / BLOCK_ROWS);
      const sources = blocks.get(block);
      if (!sources) continue;
      let map = columns.get(block);
      if (!map) columns.set(block, (map = columnsOf(sources, geometry, width)));
      mergeRow(codes, sources, map, row - block * BLOCK_ROWS);
    }
    for (let x = 0; x < width; x++) pixels[line + x] = colors[codes[x]!]!;
  }
}

function mergeRow(codes: Uint16Array, sources: readonly Source[], map: Columns, row: number): void {
  for (let x = 0; x < codes.length; x++) {
    const source = map.source[x]!;
    if (source < 0) continue;
    const { tile } = sources[source]!;
    if (row >= tile.rows) continue;
    const code = tile.high[row * BINS + map.bin[x]!]!;
    if (code > codes[x]!) codes[x] = code;
  }
}
