/** What is not finite, as stretches to be drawn over everything else. Nothing is sampled: every bad bin is in one. */
import { BINS } from "../model/decode";
import { worst } from "../model/magnitude";
import { BLOCK_ROWS } from "../model/tiles";
import type { Source } from "./sources";

export interface Mark {
  readonly row: number;
  /** Covers [from, to) of the step axis. */
  readonly from: number;
  readonly to: number;
  /** The one state that it is painted as, and all the bits that were seen. */
  readonly state: number;
  readonly bits: number;
  /** Width of one bin, in steps. */
  readonly bin: number;
}

/** Marks of all rows, row by row and in step order; neighbouring bins of the same state are one mark. */
export function marksOf(blocks: ReadonlyMap<number, readonly Source[]>): Mark[] {
  const marks: Mark[] = [];
  for (const [block, sources] of blocks) {
    for (const source of sources) addMarks(marks, source, block * BLOCK_ROWS);
  }
  return marks;
}

function addMarks(marks: Mark[], source: Source, firstRow: number): void {
  const { tile } = source;
  const bin = 2 ** tile.level;
  let open: { row: number; from: number; to: number; state: number; bits: number } | undefined;
  const close = (): void => {
    if (open) marks.push({ ...open, bin });
    open = undefined;
  };
  for (const index of tile.bad) {
    const from = tile.firstStep + (index % BINS) * bin;
    if (from >= source.to || from + bin <= source.from) continue;
    const row = firstRow + Math.floor(index / BINS);
    const bits = tile.state[index]!;
    const state = worst(bits);
    if (open && open.row === row && open.to === from && open.state === state) {
      open.to = from + bin;
      open.bits |= bits;
    } else {
      close();
      open = { row, from, to: from + bin, state, bits };
    }
  }
  close();
}

/** Whether that row is bad at that step, as far as the bins tell. */
export function isBad(marks: readonly Mark[], row: number, step: number): boolean {
  return marks.some((mark) => mark.row === row && mark.from <= step && step < mark.to);
}

/** The earliest mark that reaches to this step or beyond: where a view first shows what happened there. */
export function firstFrom(marks: readonly Mark[], step: number): Mark | undefined {
  let first: Mark | undefined;
  for (const mark of marks) if (mark.to > step && (!first || mark.from < first.from)) first = mark;
  return first;
}

/** States in the order in which to draw them: the commonest first, so that the rare ones end on top. */
export function drawingOrder(marks: readonly Mark[]): number[] {
  const lengths = new Map<number, number>();
  for (const mark of marks) lengths.set(mark.state, (lengths.get(mark.state) ?? 0) + (mark.to - mark.from) / mark.bin);
  return [...lengths].sort((a, b) => b[1] - a[1]).map(([state]) => state);
}
