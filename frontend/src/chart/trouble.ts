/**
 * How NaN, +Inf and -Inf look: a colour of their own each, and a hatch and a glyph of their own each, so that they
 * are told apart in grey as well. Used by the heatmap, the line charts and the legend.
 */
import { NAN, NEG_INF, POS_INF, UNKNOWN } from "../model/magnitude";
import type { Palette } from "./color";

export const TROUBLES = [NAN, POS_INF, NEG_INF, UNKNOWN] as const;

const TILE = 8;
const patterns = new Map<string, CanvasPattern>();

/** The hatch of a state: NaN crossed, +Inf rising, -Inf falling, unknown dotted. */
export function hatch(context: CanvasRenderingContext2D, palette: Palette, state: number): CanvasPattern | string {
  const key = `${palette.theme}/${state}`;
  const known = patterns.get(key);
  if (known) return known;
  const pattern = drawTile(context, palette.onTrouble[state] ?? palette.paper, (ink) => {
    ink.globalAlpha = 0.5;
    if (state === UNKNOWN) ink.fillRect(2, 2, 2, 2);
    if (state === NAN || state === POS_INF) rising(ink);
    if (state === NAN || state === NEG_INF) falling(ink);
  });
  if (!pattern) return "transparent";
  patterns.set(key, pattern);
  return pattern;
}

/** The faint strokes of "not measured". */
export function unmeasuredHatch(context: CanvasRenderingContext2D, palette: Palette): CanvasPattern | string {
  const key = `${palette.theme}/unmeasured`;
  const known = patterns.get(key);
  if (known) return known;
  const pattern = drawTile(context, palette.unmeasuredStroke, (ink) => {
    ink.fillStyle = palette.unmeasured;
    ink.fillRect(0, 0, TILE, TILE);
    rising(ink);
  });
  if (!pattern) return palette.unmeasured;
  patterns.set(key, pattern);
  return pattern;
}

function drawTile(context: CanvasRenderingContext2D, color: string, draw: (ink: CanvasRenderingContext2D) => void): CanvasPattern | null {
  const canvas = document.createElement("canvas");
  canvas.width = TILE;
  canvas.height = TILE;
  const ink = canvas.getContext("2d");
  if (!ink) return null;
  ink.fillStyle = color;
  ink.strokeStyle = color;
  ink.lineWidth = 1.25;
  draw(ink);
  return context.createPattern(canvas, "repeat");
}

/** A diagonal and the two corners by which it continues in the neighbouring tiles. */
function rising(ink: CanvasRenderingContext2D): void {
  ink.beginPath();
  for (const shift of [-TILE, 0, TILE]) {
    ink.moveTo(shift - 1, TILE + 1);
    ink.lineTo(shift + TILE + 1, -1);
  }
  ink.stroke();
}

function falling(ink: CanvasRenderingContext2D): void {
  ink.beginPath();
  for (const shift of [-TILE, 0, TILE]) {
    ink.moveTo(shift - 1, -1);
    ink.lineTo(shift + TILE + 1, TILE + 1);
  }
  ink.stroke();
}

/** NaN a cross, +Inf an upward triangle, -Inf a downward one, unknown a ring; `size` is its width. */
export function glyph(context: CanvasRenderingContext2D, state: number, x: number, y: number, size: number, color: string): void {
  const half = size / 2;
  context.save();
  context.fillStyle = color;
  context.strokeStyle = color;
  context.lineWidth = Math.max(1.5, size / 4.5);
  context.lineCap = "round";
  context.beginPath();
  if (state === NAN) {
    context.moveTo(x - half, y - half);
    context.lineTo(x + half, y + half);
    context.moveTo(x + half, y - half);
    context.lineTo(x - half, y + half);
    context.stroke();
  } else if (state === POS_INF || state === NEG_INF) {
    const up = state === POS_INF ? 1 : -1;
    context.moveTo(x, y - up * half);
    context.lineTo(x + half, y + up * half);
    context.lineTo(x - half, y + up * half);
    context.closePath();
    context.fill();
  } else {
    context.arc(x, y, half, 0, 2 * Math.PI);
    context.stroke();
  }
  context.restore();
}
