/** Draws the heatmap: cells, trouble over them, incidents, names, axis and the rail of all rows. */
import { formatCount } from "../model/format";
import { beginsLayer } from "../model/rows";
import { stepTicks } from "./axis";
import type { Palette } from "./color";
import { FLAGS, GAP, type Geometry, RAIL, STRIP, visibleRows, xOf, yOf } from "./geometry";
import { type Mark, drawingOrder, isBad } from "./marks";
import { drawNames } from "./names";
import { rasterize } from "./raster";
import { FONT, type Scene } from "./scene";
import { pixelRatio } from "./surface";
import { TROUBLES, glyph, hatch, unmeasuredHatch } from "./trouble";

const BOLD = `600 ${FONT}`;
/** A bad bin is drawn at least this wide and high, however many steps or rows share its pixel. */
const LEAST = 3;
const GLYPH_ROOM = 9;

export function drawHeatmap(context: CanvasRenderingContext2D, scene: Scene): void {
  context.font = FONT;
  context.textBaseline = "middle";
  drawCells(context, scene);
  drawGrid(context, scene);
  drawFlags(context, scene);
  drawMarks(context, scene);
  drawOrigins(context, scene);
  drawStrip(context, scene);
  drawNames(context, scene);
  drawAxis(context, scene);
  drawRail(context, scene);
}

let buffer: HTMLCanvasElement | undefined;

function drawCells(context: CanvasRenderingContext2D, { geometry, palette, blocks, colors, hold }: Scene): void {
  const { plot } = geometry;
  context.fillStyle = unmeasuredHatch(context, palette);
  context.fillRect(plot.x, plot.y, plot.width, Math.min(plot.height, geometry.content));
  const ratio = pixelRatio();
  const [width, height] = [Math.round(plot.width * ratio), Math.round(plot.height * ratio)];
  buffer ??= document.createElement("canvas");
  if (buffer.width !== width) buffer.width = width;
  if (buffer.height !== height) buffer.height = height;
  const ink = buffer.getContext("2d");
  if (!ink) return;
  const image = ink.createImageData(width, height);
  rasterize(new Uint32Array(image.data.buffer), width, height, geometry, blocks, colors, hold);
  ink.putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(buffer, plot.x, plot.y, plot.width, plot.height);
}

/** Hairlines between layers, where rows are tall enough to be told apart. */
function drawGrid(context: CanvasRenderingContext2D, { geometry, palette, rows }: Scene): void {
  if (geometry.rowHeight < 7) return;
  const { first, last } = visibleRows(geometry);
  context.fillStyle = palette.paper;
  for (let row = Math.max(1, first); row <= last; row++) {
    if (!beginsLayer(rows, row)) continue;
    context.fillRect(geometry.plot.x, Math.round(yOf(geometry, row)) - 1, geometry.plot.width, 1);
  }
}

/** One stretch of trouble: where it is drawn, at least LEAST wide. */
export function markSpan(geometry: Geometry, mark: Mark): { readonly x: number; readonly width: number } {
  const { plot } = geometry;
  const left = Math.max(plot.x, xOf(geometry, mark.from));
  const right = Math.min(plot.x + plot.width, xOf(geometry, mark.to));
  const width = Math.max(LEAST, right - left);
  const x = Math.min(plot.x + plot.width - width, Math.max(plot.x, (left + right - width) / 2));
  return { x, width };
}

function drawMarks(context: CanvasRenderingContext2D, { geometry, palette, marks }: Scene): void {
  const { plot, rowHeight } = geometry;
  const { first, last } = visibleRows(geometry);
  const height = Math.max(LEAST, rowHeight);
  context.save();
  context.beginPath();
  context.rect(plot.x, plot.y, plot.width, plot.height);
  context.clip();
  for (const state of drawingOrder(marks)) {
    const shown = marks.filter((mark) => mark.state === state && mark.row >= first && mark.row <= last);
    const boxes = shown.map((mark) => ({ mark, ...markSpan(geometry, mark), y: yOf(geometry, mark.row) + (rowHeight - height) / 2 }));
    // A rim of paper lets a sliver stand out from the cells beside it.
    context.fillStyle = palette.paper;
    for (const { x, y, width } of boxes) if (width < 8) context.fillRect(x - 1, y, width + 2, height);
    context.fillStyle = palette.trouble[state] ?? palette.ink;
    for (const { x, y, width } of boxes) context.fillRect(x, y, width, height);
    context.fillStyle = hatch(context, palette, state);
    for (const { x, y, width } of boxes) if (width >= 8) context.fillRect(x, y, width, height);
    if (rowHeight < GLYPH_ROOM) continue;
    for (const { mark, x, y, width } of boxes) drawGlyphs(context, palette, geometry, mark, x, width, y + height / 2);
  }
  context.restore();
}

/** A glyph in every bin that is wide enough for one; in long stretches of slim bins one at the beginning. */
function drawGlyphs(context: CanvasRenderingContext2D, palette: Palette, geometry: Geometry, mark: Mark, x: number, width: number, y: number): void {
  const color = palette.trouble[mark.state] ?? palette.ink;
  const size = Math.min(7, geometry.rowHeight - 5);
  const bin = xOf(geometry, mark.bin) - xOf(geometry, 0);
  const put = (at: number): void => {
    context.fillStyle = color;
    context.fillRect(at - size / 2 - 2, y - size / 2 - 2, size + 4, size + 4);
    glyph(context, mark.state, at, y, size, palette.onTrouble[mark.state] ?? palette.paper);
  };
  if (bin >= 2 * GLYPH_ROOM) {
    for (let step = mark.from; step < mark.to; step += mark.bin) put(xOf(geometry, step + mark.bin / 2));
  } else if (width >= 2 * GLYPH_ROOM) put(x + GLYPH_ROOM);
}

/** A ring around the very cell where an incident began: the one place to look at among all that it spread to. None around a cell that is not bad itself. */
function drawOrigins(context: CanvasRenderingContext2D, { geometry, palette, flags, marks }: Scene): void {
  const { plot, window, rowHeight } = geometry;
  context.save();
  context.beginPath();
  context.rect(plot.x - 6, plot.y - 3, plot.width + 9, plot.height + 6);
  context.clip();
  for (const { row, step } of flags) {
    if (row === undefined || !isBad(marks, row, step) || step + 1 <= window.from || step >= window.to) continue;
    const [left, right] = [xOf(geometry, step), xOf(geometry, step + 1)];
    const [width, height] = [Math.max(9, right - left + 3), Math.max(9, rowHeight + 2)];
    const [x, y] = [(left + right - width) / 2, yOf(geometry, row) + (rowHeight - height) / 2];
    for (const [color, thick] of [[palette.paper, 4.5], [palette.ink, 2]] as const) {
      context.strokeStyle = color;
      context.lineWidth = thick;
      context.beginPath();
      context.roundRect(x, y, width, height, 3);
      context.stroke();
    }
  }
  context.restore();
}

/** The strip over the plot: for every column, the worst of all rows there, scrolled out or not. */
function drawStrip(context: CanvasRenderingContext2D, { geometry, palette, marks }: Scene): void {
  const { plot } = geometry;
  context.fillStyle = palette.line;
  context.fillRect(plot.x, FLAGS + STRIP - 1, plot.width, 1);
  for (const state of [...TROUBLES].reverse()) {
    context.fillStyle = palette.trouble[state] ?? palette.ink;
    for (const mark of marks) {
      if (mark.state !== state) continue;
      const { x, width } = markSpan(geometry, mark);
      context.fillRect(x, FLAGS, width, STRIP);
    }
  }
}

function drawFlags(context: CanvasRenderingContext2D, { geometry, palette, flags }: Scene): void {
  const { plot } = geometry;
  let free = plot.x;
  context.font = BOLD;
  for (const flag of flags) {
    if (flag.step + 1 < geometry.window.from || flag.step > geometry.window.to) continue;
    // At the left edge of the step's column, so that the line never covers what it points at.
    const x = Math.max(plot.x, Math.min(plot.x + plot.width, xOf(geometry, flag.step))) - 0.5;
    context.strokeStyle = palette.ink;
    context.lineWidth = 1;
    context.setLineDash([3, 3]);
    context.beginPath();
    context.moveTo(x, FLAGS - 4);
    context.lineTo(x, plot.y + plot.height);
    context.stroke();
    context.setLineDash([]);
    const text = `step ${formatCount(flag.step)}`;
    const width = context.measureText(text).width + 12;
    const left = Math.min(plot.x + plot.width - width, Math.max(plot.x, x - width / 2));
    if (left < free) continue;
    free = left + width + 4;
    context.fillStyle = flag.recovered ? palette.faint : palette.ink;
    context.beginPath();
    context.roundRect(left, 0, width, FLAGS - 4, 3);
    context.fill();
    context.fillStyle = palette.paper;
    context.textAlign = "center";
    context.fillText(text, left + width / 2, (FLAGS - 4) / 2 + 0.5);
  }
  context.textAlign = "left";
  context.font = FONT;
}

function drawAxis(context: CanvasRenderingContext2D, { geometry, palette }: Scene): void {
  const { plot } = geometry;
  const bottom = plot.y + plot.height;
  context.textAlign = "center";
  for (const tick of stepTicks(geometry.window, plot.width)) {
    const x = xOf(geometry, tick.position);
    if (x < plot.x || x > plot.x + plot.width) continue;
    context.fillStyle = palette.faint;
    context.fillRect(Math.round(x), bottom, 1, 4);
    const text = formatCount(tick.step);
    const half = context.measureText(text).width / 2;
    context.fillText(text, Math.min(geometry.width - half, Math.max(half, x)), bottom + 13);
  }
  context.textAlign = "left";
}

function drawRail(context: CanvasRenderingContext2D, { geometry, palette, everywhere }: Scene): void {
  const { plot, content, scroll } = geometry;
  const x = plot.x + plot.width + GAP;
  const height = Math.min(plot.height, content);
  const scrolls = content > plot.height + 0.5;
  if (!scrolls && geometry.rowHeight >= 6) return; // every row is in plain sight
  context.fillStyle = palette.unmeasured;
  context.fillRect(x, plot.y, RAIL, height);
  const scale = height / Math.max(1, geometry.rows);
  const tall = Math.max(LEAST, scale);
  for (const state of drawingOrder(everywhere)) {
    context.fillStyle = palette.trouble[state] ?? palette.ink;
    for (const mark of everywhere) {
      if (mark.state !== state) continue;
      const y = plot.y + Math.min(height - tall, Math.max(0, mark.row * scale + (scale - tall) / 2));
      context.fillRect(x + 3, y, RAIL - 3, tall);
    }
  }
  if (!scrolls) return;
  context.strokeStyle = palette.accent;
  context.lineWidth = 1.5;
  context.strokeRect(x + 0.75, plot.y + (scroll / content) * height + 0.75, RAIL - 1.5, Math.max(6, (plot.height / content) * height - 1.5));
}
