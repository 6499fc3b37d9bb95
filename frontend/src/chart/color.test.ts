import { expect, test } from "vitest";
import { FIRST_FINITE, ZERO, codeOfDecades } from "../model/magnitude";
import { PALETTES, colorTables, parseHex, rampAt } from "./color";
import { decadesIn } from "./domain";
import { tileOf } from "./fixture";

type Rgb = readonly [number, number, number];

function linear(value: number): number {
  return value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4;
}

function luminance(rgb: Rgb): number {
  const [red, green, blue] = rgb.map(linear) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(a: Rgb, b: Rgb): number {
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p) as [number, number];
  return (x + 0.05) / (y + 0.05);
}

type Lab = readonly [number, number, number];
type Matrix = readonly (readonly [number, number, number])[];

/** What linear light becomes for eyes that lack one kind of cone: Machado, Oliveira and Fernandes, 2009. */
const VISIONS: Readonly<Record<string, Matrix>> = {
  full: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanope: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranope: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanope: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

/** OKLab, where equal distances look equally far apart. */
function oklab(rgb: Rgb, vision: Matrix): Lab {
  const light = rgb.map(linear) as [number, number, number];
  const [r, g, b] = vision.map((row) => Math.min(1, Math.max(0, row[0] * light[0] + row[1] * light[1] + row[2] * light[2]))) as [number, number, number];
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s, 1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s, 0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s];
}

function apart(a: Lab, b: Lab): number {
  return Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}

for (const palette of Object.values(PALETTES)) {
  test(`${palette.theme}: lightness along the ramp goes one way only, towards or from the paper`, () => {
    const values = Array.from({ length: 33 }, (_, i) => luminance(rampAt(palette, i / 32)));
    const steps = values.slice(1).map((value, i) => Math.sign(value - values[i]!));
    expect(new Set(steps).size).toBe(1);
  });

  for (const [vision, matrix] of Object.entries(VISIONS)) {
    test(`${palette.theme}: with ${vision} vision every state is told from the ramp, from the rest of the plot and from the others`, () => {
      const seen = (rgb: Rgb): Lab => oklab(rgb, matrix);
      const named = { ...palette.trouble, zero: palette.zero, unmeasured: palette.unmeasured };
      for (const [name, color] of Object.entries(named)) {
        for (let i = 0; i <= 32 && name !== "unmeasured"; i++) expect(apart(seen(parseHex(color)), seen(rampAt(palette, i / 32))), `${name} and the ramp at ${i}`).toBeGreaterThan(0.08);
        for (const [other, its] of Object.entries(named)) {
          if (other !== name) expect(apart(seen(parseHex(color)), seen(parseHex(its))), `${name} and ${other}`).toBeGreaterThan(0.06);
        }
      }
    });
  }

  test(`${palette.theme}: text and glyphs have the contrast that AA asks for`, () => {
    for (const ink of [palette.ink, palette.faint, palette.accent]) expect(contrast(parseHex(ink), parseHex(palette.paper))).toBeGreaterThan(4.5);
    for (const color of Object.values(palette.trouble)) expect(contrast(parseHex(color), parseHex(palette.unmeasured))).toBeGreaterThan(2);
    for (const [state, color] of Object.entries(palette.trouble)) expect(contrast(parseHex(color), parseHex(palette.onTrouble[Number(state)]!))).toBeGreaterThan(3);
  });

  test(`${palette.theme}: codes outside the range have the colours of its ends, zero its own, the unmeasured none`, () => {
    const { own: table, held } = colorTables(palette, { low: -2, high: 2 });
    expect(table[0]).toBe(0);
    expect(held[0]).toBe(0);
    expect(held[ZERO]! >>> 24).toBe(158);
    expect(held[ZERO]! & 0xffffff).toBe(table[ZERO]! & 0xffffff);
    expect(table[FIRST_FINITE]).toBe(table[codeOfDecades(-2)]);
    expect(table[65535]).toBe(table[codeOfDecades(2)]);
    expect(table[ZERO]).not.toBe(table[FIRST_FINITE]);
    expect(table[codeOfDecades(0)]).not.toBe(table[codeOfDecades(1)]);
  });
}

test("the ramp spans what is in view in whole decades, at least two", () => {
  const steady = tileOf(0, 1, 0, {}, codeOfDecades(0.4));
  expect(decadesIn([{ tile: steady, from: 0, to: 256 }])).toEqual({ low: -1, high: 1 });
  const both = tileOf(0, 1, 0, Object.fromEntries(Array.from({ length: 128 }, (_, i) => [`0,${i}`, { code: codeOfDecades(-5) }])), codeOfDecades(3));
  expect(decadesIn([{ tile: both, from: 0, to: 256 }])).toEqual({ low: -6, high: 4 });
  expect(decadesIn([{ tile: both, from: 128, to: 256 }])).toEqual({ low: 2, high: 4 });
  expect(decadesIn([])).toEqual({ low: -2, high: 1 });
});

test("a short explosion does not bleach the rest", () => {
  const cells = Object.fromEntries(Array.from({ length: 5 }, (_, i) => [`0,${250 + i}`, { code: codeOfDecades(10 + 5 * i) }]));
  const { low, high } = decadesIn([{ tile: tileOf(0, 1, 0, cells, codeOfDecades(0)), from: 0, to: 256 }]);
  expect(low).toBeGreaterThanOrEqual(-1);
  expect(high).toBeLessThanOrEqual(5);
});
