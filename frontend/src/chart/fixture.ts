/** Tiles made by hand, for tests. */
import { BINS, type Tile } from "../model/decode";
import { BAD } from "../model/magnitude";

export type Cells = Readonly<Record<string, { readonly code?: number; readonly state?: number }>>;

/** A tile whose cells are named "row,bin"; all others have `fill` as their magnitude code. */
export function tileOf(level: number, rows: number, firstStep: number, cells: Cells, fill = 0): Tile {
  const high = new Uint16Array(rows * BINS).fill(fill);
  const state = new Uint8Array(rows * BINS);
  for (const [name, cell] of Object.entries(cells)) {
    const [row = 0, bin = 0] = name.split(",").map(Number);
    high[row * BINS + bin] = cell.code ?? 0;
    state[row * BINS + bin] = cell.state ?? 0;
  }
  const bad = Uint32Array.from([...state.keys()].filter((index) => (state[index] ?? 0) & BAD));
  return { level, rows, firstStep, low: high.slice(), high, state, bad };
}
