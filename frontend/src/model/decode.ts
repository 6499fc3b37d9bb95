/** Binary answers (http_api.md) to typed arrays. A body that is not what it claims throws, and names the reason. */
import { BAD } from "./magnitude";

export const BINS = 256;

export interface Tile {
  readonly level: number;
  readonly rows: number;
  readonly firstStep: number;
  /** [rows][BINS], row after row: smallest and largest finite magnitude code of the bin, 0 if none. */
  readonly low: Uint16Array;
  readonly high: Uint16Array;
  readonly state: Uint8Array;
  /** Indices (row * BINS + bin) of all cells that hold anything non-finite, ascending. */
  readonly bad: Uint32Array;
}

export interface Series {
  readonly stepsPerPoint: number;
  /** The first step of each point. */
  readonly step: Float64Array;
  /** Smallest and largest finite value; NaN if none. */
  readonly low: Float64Array;
  readonly high: Float64Array;
  readonly state: Uint8Array;
}

export function decodeTile(body: ArrayBuffer): Tile {
  const view = open(body, "NWT1", 24);
  const rows = view.getUint32(8, true);
  const bins = view.getUint32(12, true);
  if (bins !== BINS) throw new Error(`a tile has ${bins} bins where ${BINS} are expected`);
  const cells = rows * BINS;
  expectSize(body, 24 + 5 * cells, "tile");
  const state = new Uint8Array(body, 24 + 4 * cells, cells);
  return {
    level: view.getUint32(4, true),
    rows,
    firstStep: Number(view.getBigInt64(16, true)),
    low: uint16(body, 24, cells),
    high: uint16(body, 24 + 2 * cells, cells),
    state,
    bad: indicesOfBad(state),
  };
}

export function decodeSeries(body: ArrayBuffer): Series {
  const view = open(body, "NWS1", 16);
  const points = view.getUint32(4, true);
  expectSize(body, 16 + 25 * points, "series");
  return {
    stepsPerPoint: Math.max(1, view.getUint32(8, true)),
    step: float64(body, 16, points),
    low: float64(body, 16 + 8 * points, points),
    high: float64(body, 16 + 16 * points, points),
    state: new Uint8Array(body, 16 + 24 * points, points),
  };
}

function open(body: ArrayBuffer, magic: string, header: number): DataView {
  const view = new DataView(body);
  if (body.byteLength < header) throw new Error(`an answer of ${body.byteLength} bytes is shorter than its header`);
  const found = String.fromCharCode(...new Uint8Array(body, 0, 4));
  if (found !== magic) throw new Error(`an answer begins with ${JSON.stringify(found)} where ${magic} is expected`);
  return view;
}

function expectSize(body: ArrayBuffer, size: number, what: string): void {
  if (body.byteLength !== size) throw new Error(`a ${what} has ${body.byteLength} bytes where ${size} are announced`);
}

const LITTLE_ENDIAN = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;

function uint16(body: ArrayBuffer, offset: number, length: number): Uint16Array {
  if (LITTLE_ENDIAN) return new Uint16Array(body, offset, length);
  const view = new DataView(body, offset);
  return Uint16Array.from({ length }, (_, i) => view.getUint16(2 * i, true));
}

function float64(body: ArrayBuffer, offset: number, length: number): Float64Array {
  if (LITTLE_ENDIAN) return new Float64Array(body, offset, length);
  const view = new DataView(body, offset);
  return Float64Array.from({ length }, (_, i) => view.getFloat64(8 * i, true));
}

function indicesOfBad(state: Uint8Array): Uint32Array {
  let count = 0;
  for (const bits of state) if (bits & BAD) count++;
  const bad = new Uint32Array(count);
  if (count > 0) {
    let at = 0;
    for (let i = 0; i < state.length; i++) if (state[i]! & BAD) bad[at++] = i;
  }
  return bad;
}
