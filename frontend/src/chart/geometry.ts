/** Where things are in the heatmap, in CSS pixels from the top left corner of its canvas. */
import { type Window, span } from "../model/steps";
import type { RowMode } from "../model/selection";

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

export interface Geometry {
  readonly width: number;
  readonly height: number;
  readonly plot: Box;
  readonly rows: number;
  readonly rowHeight: number;
  /** Height of all rows together, and how much of it is scrolled out at the top. */
  readonly content: number;
  readonly scroll: number;
  readonly window: Window;
}

/** Above the plot: flags of incidents, then a strip that says whether any row is bad in a column. */
export const FLAGS = 20;
export const STRIP = 7;
export const AXIS = 24;
/** Right of the plot: all rows of the run squeezed into its height, bad ones marked; also the scroll bar. */
export const RAIL = 14;
export const GAP = 3;

const TALLEST_ROW = 22;
const READABLE_ROW = 16;

export interface Space {
  readonly width: number;
  /** The most that the rows may take. */
  readonly tallest: number;
  readonly names: number;
}

export function layOut(space: Space, rows: number, mode: RowMode, scroll: number, window: Window): Geometry {
  const comfortable = Math.min(TALLEST_ROW, space.tallest / Math.max(1, rows));
  const rowHeight = mode === "readable" ? Math.max(READABLE_ROW, comfortable) : comfortable;
  const content = rows * rowHeight;
  const height = Math.max(TALLEST_ROW, Math.min(space.tallest, content));
  const plot = { x: space.names, y: FLAGS + STRIP + GAP, width: Math.max(40, space.width - space.names - RAIL - GAP), height };
  return {
    width: space.width,
    height: plot.y + height + AXIS,
    plot,
    rows,
    rowHeight,
    content,
    scroll: Math.min(Math.max(0, content - height), Math.max(0, scroll)),
    window,
  };
}

export function xOf(geometry: Geometry, position: number): number {
  return geometry.plot.x + ((position - geometry.window.from) / span(geometry.window)) * geometry.plot.width;
}

export function positionAt(geometry: Geometry, x: number): number {
  return geometry.window.from + ((x - geometry.plot.x) / geometry.plot.width) * span(geometry.window);
}

export function yOf(geometry: Geometry, row: number): number {
  return geometry.plot.y + row * geometry.rowHeight - geometry.scroll;
}

/** The row at a height, or undefined above the first, below the last and outside the plot. */
export function rowAt(geometry: Geometry, y: number): number | undefined {
  if (y < geometry.plot.y || y >= geometry.plot.y + geometry.plot.height) return undefined;
  const row = Math.floor((y - geometry.plot.y + geometry.scroll) / geometry.rowHeight);
  return row >= 0 && row < geometry.rows ? row : undefined;
}

/** First and last row of which any part shows. */
export function visibleRows(geometry: Geometry): { readonly first: number; readonly last: number } {
  const first = Math.floor(geometry.scroll / geometry.rowHeight + 1e-9);
  const last = Math.ceil((geometry.scroll + geometry.plot.height) / geometry.rowHeight - 1e-9) - 1;
  return { first: Math.max(0, first), last: Math.max(0, Math.min(geometry.rows - 1, last)) };
}

/** The scroll that brings a row into view, with a little company; unchanged where it shows already. */
export function scrollTo(geometry: Geometry, row: number): number {
  const top = row * geometry.rowHeight;
  const shown = top >= geometry.scroll && top + geometry.rowHeight <= geometry.scroll + geometry.plot.height;
  return shown ? geometry.scroll : Math.max(0, Math.min(geometry.content - geometry.plot.height, top - geometry.plot.height / 3));
}

export type Area = "plot" | "names" | "rail" | "flags" | "none";

export function areaAt(geometry: Geometry, x: number, y: number): Area {
  const { plot } = geometry;
  if (y < plot.y) return x >= plot.x && x < plot.x + plot.width ? "flags" : "none";
  if (y >= plot.y + plot.height) return "none";
  if (x < plot.x) return "names";
  return x < plot.x + plot.width ? "plot" : "rail";
}
