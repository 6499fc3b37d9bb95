/** What follows the pointer or the cursor keys, on a canvas of its own above the heatmap. */
import type { Palette } from "./color";
import { type Geometry, xOf, yOf } from "./geometry";

export interface Cursor {
  readonly row: number | undefined;
  /** Covers [from, to) of the step axis. */
  readonly from: number;
  readonly to: number;
}

export function drawOverlay(context: CanvasRenderingContext2D, geometry: Geometry, palette: Palette, cursor: Cursor | undefined): void {
  if (!cursor) return;
  const { plot, rowHeight } = geometry;
  const left = xOf(geometry, cursor.from);
  const right = xOf(geometry, cursor.to);
  context.save();
  context.beginPath();
  context.rect(0, plot.y, plot.x + plot.width, plot.height);
  context.clip();
  context.fillStyle = palette.ink;
  context.globalAlpha = 0.28;
  context.fillRect((left + right) / 2 - 0.5, plot.y, 1, plot.height);
  if (cursor.row !== undefined) {
    const y = yOf(geometry, cursor.row);
    const height = Math.max(3, rowHeight);
    context.globalAlpha = 0.09;
    context.fillRect(0, y, plot.x, height);
    context.globalAlpha = 1;
    const width = Math.max(5, right - left);
    const x = (left + right - width) / 2;
    context.strokeStyle = palette.paper;
    context.lineWidth = 3;
    context.strokeRect(x, y, width, height);
    context.strokeStyle = palette.ink;
    context.lineWidth = 1.25;
    context.strokeRect(x, y, width, height);
  }
  context.restore();
}
