import { expect, test } from "vitest";
import { FIRST_FINITE, ZERO, codeOfDecades } from "../model/magnitude";
import { PALETTES, colorTable, parseHex, rampAt } from "./color";
import { decadesIn } from "./domain";
import { tileOf } from "./fixture";

type Rgb = readonly [number, number, number];

function luminance(rgb: Rgb): number {
  const [red, green, blue] = rgb.map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4)) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(a: Rgb, b: Rgb): number {
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p) as [number, number];
  return (x + 0.05) / (y + 0.05);
}

for (const palette of Object.values(PALETTES)) {
  test(`${palette.theme}: lightness along the ramp goes one way only, towards or from the paper`, () => {
    const values = Array.from({ length: 33 }, (_, i) => luminance(rampAt(palette, i / 32)));
    const steps = values.slice(1).map((value, i) => Math.sign(value - values[i]!));
    expect(new Set(steps).size).toBe(1);
  });

  test(`${palette.theme}: trouble and zero are far from every colour of the ramp`, () => {
    for (const color of [...Object.values(palette.trouble), palette.zero]) {
      for (let i = 0; i <= 32; i++) {
        const distance = Math.hypot(...parseHex(color).map((value, channel) => value - rampAt(palette, i / 32)[channel]!));
        expect(distance).toBeGreaterThan(60);
      }
    }
  });

  test(`${palette.theme}: text and glyphs have the contrast that AA asks for`, () => {
    for (const ink of [palette.ink, palette.faint, palette.accent]) expect(contrast(parseHex(ink), parseHex(palette.paper))).toBeGreaterThan(4.5);
    for (const color of Object.values(palette.trouble)) expect(contrast(parseHex(color), parseHex(palette.unmeasured))).toBeGreaterThan(2.3);
  });

  test(`${palette.theme}: codes outside the range have the colours of its ends, zero its own, the unmeasured none`, () => {
    const table = colorTable(palette, { low: -2, high: 2 });
    expect(table[0]).toBe(0);
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
