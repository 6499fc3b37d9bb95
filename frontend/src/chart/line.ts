/** Line charts on uPlot: gaps where nothing was measured, symbols at the edge where nothing was finite. */
import uPlot from "uplot";
import { formatDecade, formatNumber } from "../model/format";
import { BAD, NEG_INF, worst } from "../model/magnitude";
import type { Series } from "../model/decode";
import type { Window } from "../model/steps";
import { decadeTicks, stepTicks } from "./axis";
import type { Palette } from "./color";
import { FONT, type Flag } from "./scene";
import { glyph } from "./trouble";

/** A series as it is drawn: on a logarithmic axis the values are log10, so that 1e-300 and 1e300 are nothing special. */
export interface Plotted {
  readonly x: number[];
  readonly low: (number | null)[];
  readonly high: (number | null)[];
  readonly logarithmic: boolean;
  readonly banded: boolean;
}

/** Logarithmic where every finite value of all lines is positive or zero and they differ a lot. */
export function worthLogarithm(...lines: readonly Series[]): boolean {
  let [least, most] = [Infinity, 0];
  for (const series of lines) {
    for (let i = 0; i < series.step.length; i++) {
      const [low, high] = [series.low[i]!, series.high[i]!];
      if (low < 0) return false;
      if (low > 0) least = Math.min(least, low);
      if (high > 0) most = Math.max(most, high);
    }
  }
  return most > 20 * least;
}

/** What a chart holds: steps, low and high of its line, and with a second line in it that one's high. */
export function aligned({ series, beside, logarithmic }: LineData): uPlot.AlignedData {
  const { x, low, high } = plotted(series, logarithmic);
  if (!beside) return [x, low, high];
  const second = plotted(beside, logarithmic);
  return uPlot.join([[x, low, high], [second.x, second.high]]);
}

/** Points in the middle of what they cover; between points that do not adjoin the line is broken. */
export function plotted(series: Series, logarithmic: boolean): Plotted {
  const out: Plotted = { x: [], low: [], high: [], logarithmic, banded: series.stepsPerPoint > 1 };
  const per = series.stepsPerPoint;
  const usual = usualDistance(series);
  const scale = (value: number): number | null => (Number.isFinite(value) ? (logarithmic ? (value > 0 ? Math.log10(value) : null) : value) : null);
  for (let i = 0; i < series.step.length; i++) {
    const step = series.step[i]!;
    if (i > 0 && step - series.step[i - 1]! > 2.5 * usual) push(out, (step + series.step[i - 1]!) / 2, null, null);
    push(out, step + per / 2, scale(series.low[i]!), scale(series.high[i]!));
  }
  return out;
}

function push(out: Plotted, x: number, low: number | null, high: number | null): void {
  out.x.push(x);
  out.low.push(low);
  out.high.push(high);
}

/** The median distance of neighbouring points: statistics of every tenth step are not all gaps. */
function usualDistance(series: Series): number {
  const distances: number[] = [];
  for (let i = 1; i < series.step.length; i++) distances.push(series.step[i]! - series.step[i - 1]!);
  distances.sort((a, b) => a - b);
  return Math.max(series.stepsPerPoint, distances[distances.length >> 1] ?? 1);
}

export interface LineLook {
  readonly palette: Palette;
  readonly color: string;
  readonly width: number;
  readonly height: number;
  readonly window: Window;
  /** Left of the plot, as wide as the heatmap's names where there is room. */
  readonly axisWidth: number;
  readonly rightPadding: number;
  /** With a second line, dashed. */
  readonly paired: boolean;
}

/** State that the hooks of a chart read when they draw; replaced, never changed. */
export interface LineData {
  readonly series: Series;
  /** The second line, of whose trouble no symbols are drawn. */
  readonly beside: Series | undefined;
  readonly flags: readonly Flag[];
  readonly logarithmic: boolean;
}

/** What the user does in a chart, in positions of the step axis. */
export interface LineListener {
  readonly hovered: (position: number | undefined) => void;
  /** Dragged over a stretch. */
  readonly selected: (window: Window) => void;
  /** Double click. */
  readonly reset: () => void;
}

/** A drag of fewer pixels is a click. */
const DRAG_PIXELS = 5;

export function lineOptions(look: LineLook, current: () => LineData | undefined, window: () => Window, listener: LineListener): uPlot.Options {
  const { palette } = look;
  const axis: uPlot.Axis = {
    font: FONT,
    stroke: palette.faint,
    grid: { stroke: palette.line, width: 1 },
    ticks: { show: false },
  };
  return {
    width: look.width,
    height: look.height,
    pxAlign: 0,
    legend: { show: false },
    padding: [10, look.rightPadding, 0, 0],
    cursor: {
      y: false,
      drag: { x: true, y: false, setScale: false, dist: DRAG_PIXELS },
      points: { show: false },
      // uPlot calls these once, for the handlers to bind.
      bind: {
        dblclick: () => () => {
          listener.reset();
          return null;
        },
      },
    },
    scales: {
      x: { time: false, range: () => [window().from, window().to] },
      y: { range: (_, low, high) => padded(low, high) },
    },
    axes: [
      {
        ...axis,
        size: 20,
        gap: 2,
        grid: { show: false },
        splits: (self) => stepTicks(window(), self.bbox.width / uPlot.pxRatio).map((tick) => tick.position),
        values: (_, splits) => splits.map((at) => (at - 0.5).toLocaleString("en-US")),
      },
      {
        ...axis,
        size: look.axisWidth,
        gap: 6,
        splits: (_, __, low, high) => {
          if (!current()?.logarithmic) return uPlotTicks(low, high);
          const decades = decadeTicks(low, high, 4);
          return decades.length > 1 ? [...decades] : uPlotTicks(low, high);
        },
        values: (_, splits) =>
          current()?.logarithmic ? splits.map((at) => (Number.isInteger(at) ? formatDecade(at) : formatNumber(10 ** at))) : splits.map(formatNumber),
      },
    ],
    series: [
      {},
      { stroke: look.color, width: 1, points: { show: false }, alpha: 0.9 },
      { stroke: look.color, width: 1.5, points: { show: (self) => (self.data[0]?.length ?? 0) < 60, size: 4, fill: look.color } },
      ...(look.paired ? [{ stroke: palette.faint, width: 1.5, dash: [5, 3], points: { show: false } }] : []),
    ],
    bands: [{ series: [2, 1], fill: `${look.color}33` }],
    hooks: {
      setSelect: [
        (self) => {
          const { left, width } = self.select;
          if (width < DRAG_PIXELS) return;
          self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          listener.selected({ from: self.posToVal(left, "x"), to: self.posToVal(left + width, "x") });
        },
      ],
      draw: [(self) => drawExtras(self, palette, current(), window())],
      // Not the hook of the cursor: that one also fires when the scale moves under a pointer that is elsewhere.
      ready: [
        (self) => {
          self.over.addEventListener("pointermove", (event) => listener.hovered(self.posToVal(event.offsetX, "x")));
          self.over.addEventListener("pointerleave", () => listener.hovered(undefined));
        },
      ],
    },
  };
}

function padded(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null || !Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  const room = high > low ? 0.06 * (high - low) : Math.max(0.5, 0.1 * Math.abs(high));
  return [low - room, high + room];
}

function uPlotTicks(low: number, high: number): number[] {
  const step = 10 ** Math.floor(Math.log10((high - low) / 2 || 1));
  const every = [1, 2, 5, 10].map((factor) => factor * step).find((size) => (high - low) / size <= 4) ?? 10 * step;
  const found: number[] = [];
  for (let at = Math.ceil(low / every) * every; at <= high && found.length < 10; at += every) found.push(Number(at.toPrecision(12)));
  return found;
}

function drawExtras(self: uPlot, palette: Palette, data: LineData | undefined, window: Window): void {
  if (!data) return;
  const { ctx: context, bbox } = self;
  const ratio = uPlot.pxRatio;
  const x = (position: number): number => self.valToPos(position, "x", true);
  context.save();
  context.beginPath();
  context.rect(bbox.left, bbox.top - 8 * ratio, bbox.width, bbox.height + 16 * ratio);
  context.clip();
  context.strokeStyle = palette.ink;
  context.lineWidth = ratio;
  context.setLineDash([3 * ratio, 3 * ratio]);
  for (const flag of data.flags) {
    if (flag.step < window.from || flag.step > window.to) continue;
    context.beginPath();
    context.moveTo(x(flag.step), bbox.top);
    context.lineTo(x(flag.step), bbox.top + bbox.height);
    context.stroke();
  }
  context.setLineDash([]);
  drawSymbols(context, palette, data, x, bbox, ratio);
  context.restore();
}

/** NaN and +Inf along the top edge, -Inf and zeros that a logarithm cannot show along the bottom. */
function drawSymbols(context: CanvasRenderingContext2D, palette: Palette, data: LineData, x: (position: number) => number, bbox: uPlot.BBox, ratio: number): void {
  const { series, logarithmic } = data;
  const size = 6 * ratio;
  const zeros = bbox.top + bbox.height - size;
  let free = -Infinity;
  for (const stretch of stretchesOf(series)) {
    const [left, right] = [Math.max(bbox.left, x(stretch.from)), Math.min(bbox.left + bbox.width, x(stretch.to))];
    if (right < bbox.left || left > bbox.left + bbox.width) continue;
    const width = Math.max(3 * ratio, right - left);
    const from = (left + right - width) / 2;
    const down = stretch.state === NEG_INF;
    context.fillStyle = palette.trouble[stretch.state] ?? palette.ink;
    context.fillRect(from, down ? bbox.top + bbox.height + 2 * ratio : bbox.top - 6 * ratio, width, 3 * ratio);
    context.globalAlpha = 0.12;
    context.fillRect(from, bbox.top, width, bbox.height);
    context.globalAlpha = 1;
    const edge = down ? bbox.top + bbox.height - size : bbox.top + size;
    for (let at = Math.max(free, from + width / 2 > from + size ? from + size : from + width / 2); at <= from + width; at += 3 * size) {
      glyph(context, stretch.state, at, edge, size, palette.trouble[stretch.state] ?? palette.ink);
      free = at + 1.5 * size;
    }
  }
  if (!logarithmic) return;
  context.fillStyle = palette.faint;
  let last = -Infinity;
  for (let i = 0; i < series.step.length; i++) {
    const at = x(series.step[i]! + series.stepsPerPoint / 2);
    if (series.low[i] !== 0 || at < last + 2 * size) continue;
    context.fillText("0", at - 2 * ratio, zeros);
    last = at;
  }
}

interface Stretch {
  readonly from: number;
  readonly to: number;
  readonly state: number;
}

/** Neighbouring points of the same trouble as one stretch of steps. */
export function stretchesOf(series: Series): Stretch[] {
  const found: Stretch[] = [];
  const usual = usualDistance(series);
  for (let i = 0; i < series.step.length; i++) {
    const state = worst(series.state[i]! & BAD);
    if (state === 0) continue;
    const [from, to] = [series.step[i]!, series.step[i]! + series.stepsPerPoint];
    const before = found.at(-1);
    const adjoins = before && before.state === state && from - before.to <= 1.5 * usual && i > 0 && worst(series.state[i - 1]! & BAD) === state;
    if (adjoins) found[found.length - 1] = { ...before, to };
    else found.push({ from, to, state });
  }
  return found;
}
