/**
 * Colours of the heatmap. Magnitudes run along one ramp that is linear in OKLab lightness and stays among cool hues,
 * so order is read by lightness alone, with or without colour vision. Warm hues, black and white are left to trouble:
 * whoever confuses red and green, or blue and yellow, still tells every state from the ramp and from each other.
 */
import { FIRST_FINITE, LAST_CODE, NAN, NEG_INF, POS_INF, UNKNOWN, ZERO, codeOfDecades } from "../model/magnitude";
import type { Theme } from "../model/types";

export interface Palette {
  readonly theme: Theme;
  /** Behind the plot, where nothing was measured; and the strokes that mark it as such. */
  readonly unmeasured: string;
  readonly unmeasuredStroke: string;
  readonly paper: string;
  readonly ink: string;
  readonly faint: string;
  readonly line: string;
  readonly accent: string;
  readonly zero: string;
  /** Of each state: its colour, and that of the hatch and glyph on it. */
  readonly trouble: Readonly<Record<number, string>>;
  readonly onTrouble: Readonly<Record<number, string>>;
  /** OKLCH of the smallest and the largest magnitude. */
  readonly ramp: readonly [Oklch, Oklch];
}

type Oklch = readonly [lightness: number, chroma: number, hue: number];

export const PALETTES: Readonly<Record<Theme, Palette>> = {
  light: {
    theme: "light",
    unmeasured: "#f1f2f4",
    unmeasuredStroke: "#d5d8de",
    paper: "#ffffff",
    ink: "#1b1f27",
    faint: "#5c6470",
    line: "#dfe2e7",
    accent: "#2256c9",
    zero: "#c9b98f",
    trouble: { [NAN]: "#e0103a", [POS_INF]: "#ef9200", [NEG_INF]: "#000000", [UNKNOWN]: "#7c2413" },
    onTrouble: { [NAN]: "#ffffff", [POS_INF]: "#2b1a00", [NEG_INF]: "#ffffff", [UNKNOWN]: "#ffffff" },
    ramp: [
      [0.925, 0.045, 180],
      [0.27, 0.11, 275],
    ],
  },
  dark: {
    theme: "dark",
    unmeasured: "#25282d",
    unmeasuredStroke: "#3b4048",
    paper: "#1b1d21",
    ink: "#e8eaee",
    faint: "#a1a8b3",
    line: "#363a41",
    accent: "#8ab0ff",
    zero: "#8c8577",
    trouble: { [NAN]: "#ff3b53", [POS_INF]: "#ffc400", [NEG_INF]: "#ffffff", [UNKNOWN]: "#b04a2a" },
    onTrouble: { [NAN]: "#ffffff", [POS_INF]: "#2b1a00", [NEG_INF]: "#000000", [UNKNOWN]: "#ffffff" },
    ramp: [
      [0.3, 0.09, 280],
      [0.82, 0.11, 180],
    ],
  },
};

/** Colour at `share` (0 smallest, 1 largest) of the ramp, as [red, green, blue] of 0..255. */
export function rampAt(palette: Palette, share: number): readonly [number, number, number] {
  const [low, high] = palette.ramp;
  const t = Math.min(1, Math.max(0, share));
  const mix = (a: number, b: number): number => a + (b - a) * t;
  // Chroma swells in the middle, where the display can show more of it; lightness stays linear.
  return srgb([mix(low[0], high[0]), mix(low[1], high[1]) + 0.05 * Math.sin(Math.PI * t), mix(low[2], high[2])]);
}

/** The range of log10 magnitudes that the ramp spans. */
export interface Decades {
  readonly low: number;
  readonly high: number;
}

/** RGBA (little endian) of every magnitude code; 0, transparent, where nothing finite was measured. */
export interface Colors {
  readonly own: Uint32Array;
  /** Paler: of a magnitude that was measured a few steps before. */
  readonly held: Uint32Array;
}

const HELD_OPACITY = 0.62;

export function colorTables(palette: Palette, decades: Decades): Colors {
  const own = colorTable(palette, decades);
  const alpha = Math.round(255 * HELD_OPACITY) << 24;
  return { own, held: own.map((color) => (color === 0 ? 0 : (color & 0xffffff) | alpha)) };
}

function colorTable(palette: Palette, decades: Decades): Uint32Array {
  const table = new Uint32Array(LAST_CODE + 1);
  const low = codeOfDecades(decades.low);
  const high = Math.max(low + 1, codeOfDecades(decades.high));
  const first = pixel(rampAt(palette, 0));
  const last = pixel(rampAt(palette, 1));
  table.fill(first, FIRST_FINITE, low);
  for (let code = low; code <= high; code++) table[code] = pixel(rampAt(palette, (code - low) / (high - low)));
  table.fill(last, high);
  table[ZERO] = pixel(parseHex(palette.zero));
  return table;
}

export function css([red, green, blue]: readonly [number, number, number]): string {
  return `rgb(${red} ${green} ${blue})`;
}

function pixel([red, green, blue]: readonly [number, number, number]): number {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

export function parseHex(hex: string): readonly [number, number, number] {
  const value = Number.parseInt(hex.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

/** OKLCH to 8-bit sRGB, by Björn Ottosson's published matrices. */
function srgb([lightness, chroma, hue]: Oklch): readonly [number, number, number] {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    gamma(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    gamma(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    gamma(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ];
}

function gamma(linear: number): number {
  const value = Math.min(1, Math.max(0, linear));
  return Math.round(255 * (value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055));
}
