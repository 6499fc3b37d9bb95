import { expect, test } from "vitest";
import { NAN } from "../model/magnitude";
import { tileOf } from "./fixture";
import { layOut } from "./geometry";
import { rasterize } from "./raster";
import { readBin } from "./sources";

/** Colours that are the codes themselves. */
const OWN = Uint32Array.from({ length: 65536 }, (_, code) => code);
const CODES = { own: OWN, held: OWN.map((code) => code + 100_000) };

function paint(rows: number, height: number, tile: ReturnType<typeof tileOf>, from: number, to: number, hold = 0): { readonly pixels: Uint32Array; readonly width: number } {
  const geometry = layOut({ width: 57 + 256, tallest: height, names: 40 }, rows, "fit", 0, { from, to });
  const width = geometry.plot.width;
  const pixels = new Uint32Array(width * geometry.plot.height);
  rasterize(pixels, width, geometry.plot.height, geometry, new Map([[0, [{ tile, from: 0, to: 256 }]]]), CODES, hold);
  return { pixels, width };
}

test("each cell fills its pixels, and what has no tile stays transparent", () => {
  const cells = { "0,128": { code: 500 }, "1,255": { code: 900 } };
  const { pixels, width } = paint(2, 48, tileOf(0, 2, 0, cells, 100), 128, 384);
  expect(width).toBe(256);
  expect([pixels[0], pixels[1], pixels[127], pixels[128]]).toEqual([500, 100, 100, 0]);
  expect(pixels[40 * width + 127]).toBe(900);
  expect(pixels[20 * width]).toBe(500);
  expect(pixels[25 * width]).toBe(100);
});

test("where rows are lower than a pixel the largest magnitude of those that share it wins", () => {
  const { pixels, width } = paint(200, 50, tileOf(0, 200, 0, { "7,3": { code: 4000 } }, 100), 0, 256);
  expect(pixels[1 * width + 3]).toBe(4000);
  expect([...pixels].filter((code) => code === 4000).length).toBe(1);
});

test("between measurements the last one is held, paler, but not for longer than asked and not past trouble", () => {
  const cells = { "0,3": { code: 300 }, "0,20": { code: 400 }, "0,22": { state: NAN } };
  const { pixels } = paint(1, 22, tileOf(0, 1, 0, cells), 0, 256, 4);
  expect([...pixels.slice(0, 10)]).toEqual([0, 0, 0, 300, 100_300, 100_300, 100_300, 100_300, 0, 0]);
  expect([...pixels.slice(20, 25)]).toEqual([400, 100_400, 0, 0, 0]);
});

test("a cell is read back from the tile that paints it", () => {
  const tile = tileOf(2, 3, 1024, { "2,5": { code: 777, state: 17 } });
  const blocks = new Map([[1, [{ tile, from: 1024, to: 2048 }]]]);
  expect(readBin(blocks, 256 + 2, 1024 + 5 * 4 + 3.9)).toEqual({ first: 1044, last: 1047, low: 777, high: 777, state: 17 });
  expect(readBin(blocks, 256 + 3, 1030)).toBeUndefined();
  expect(readBin(blocks, 2, 1030)).toBeUndefined();
});
