/** Which rows get their name written beside them when there is not room for all. */
import { beginsLayer } from "../model/rows";
import type { TensorRow } from "../model/types";
import { type Geometry, visibleRows, yOf } from "./geometry";

export interface Label {
  readonly row: number;
  /** Middle of the text, in CSS pixels. */
  readonly y: number;
  readonly bad: boolean;
}

export const LINE = 13;

/** Every row where they are tall enough; otherwise bad rows first, then layers, as many as fit without touching. */
export function labelsOf(geometry: Geometry, rows: readonly TensorRow[], bad: ReadonlySet<number>, pinned: ReadonlySet<number>): Label[] {
  const { first, last } = visibleRows(geometry);
  const label = (row: number): Label => ({ row, y: yOf(geometry, row) + geometry.rowHeight / 2, bad: bad.has(row) });
  const all = Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => first + i).filter((row) => row < rows.length);
  if (geometry.rowHeight >= LINE) return all.map(label);
  const taken: Label[] = [];
  const top = geometry.plot.y + LINE / 2;
  const bottom = geometry.plot.y + geometry.plot.height - LINE / 2;
  const place = (row: number): void => {
    const wish = label(row);
    const candidate = { ...wish, y: Math.min(bottom, Math.max(top, wish.y)) };
    if (taken.every((other) => Math.abs(other.y - candidate.y) >= LINE)) taken.push(candidate);
  };
  for (const row of all) if (pinned.has(row)) place(row);
  for (const row of all) if (bad.has(row)) place(row);
  for (const row of all) if (beginsLayer(rows, row)) place(row);
  return taken.sort((a, b) => a.y - b.y);
}
