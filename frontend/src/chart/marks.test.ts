import { expect, test } from "vitest";
import { NAN, POS_INF } from "../model/magnitude";
import { tileOf } from "./fixture";
import { layOut, xOf, yOf } from "./geometry";
import { markSpan } from "./heatmap";
import { drawingOrder, marksOf } from "./marks";
import { sourcesOf } from "./sources";

test("neighbouring bins of one state are one mark, others stay apart", () => {
  const tile = tileOf(2, 2, 0, { "0,3": { state: NAN }, "0,4": { state: NAN | POS_INF }, "0,5": { state: POS_INF }, "1,4": { state: NAN } });
  const marks = marksOf(new Map([[1, [{ tile, from: 0, to: 1024 }]]]));
  expect(marks).toEqual([
    { row: 256, from: 12, to: 20, state: NAN, bits: NAN | POS_INF, bin: 4 },
    { row: 256, from: 20, to: 24, state: POS_INF, bits: POS_INF, bin: 4 },
    { row: 257, from: 16, to: 20, state: NAN, bits: NAN, bin: 4 },
  ]);
});

test("only the stretch that a tile stands in for is marked", () => {
  const tile = tileOf(0, 1, 0, { "0,10": { state: NAN }, "0,200": { state: NAN } });
  expect(marksOf(new Map([[0, [{ tile, from: 100, to: 256 }]]])).map((mark) => mark.from)).toEqual([200]);
});

test("one bad step of a hundred thousand is at least three pixels wide, inside the plot, wherever it is", () => {
  const geometry = layOut({ width: 700, tallest: 400, names: 100 }, 10, "fit", 0, { from: 0, to: 100_000 });
  for (const step of [0, 51_234, 99_999]) {
    const { x, width } = markSpan(geometry, { row: 0, from: step, to: step + 1, state: NAN, bits: NAN, bin: 1 });
    expect(width).toBeGreaterThanOrEqual(3);
    expect(x).toBeGreaterThanOrEqual(geometry.plot.x);
    expect(x + width).toBeLessThanOrEqual(geometry.plot.x + geometry.plot.width + 1e-9);
    expect(Math.abs(x + width / 2 - xOf(geometry, step))).toBeLessThan(4);
  }
  expect(yOf(geometry, 0)).toBe(geometry.plot.y);
});

test("rare states are drawn after common ones", () => {
  const mark = { row: 0, from: 0, to: 1, bits: 1, bin: 1 };
  expect(drawingOrder([{ ...mark, state: POS_INF }, { ...mark, to: 50, state: NAN }])).toEqual([NAN, POS_INF]);
});

test("a coarser tile stands in for a missing one", () => {
  const coarse = tileOf(1, 1, 0, { "0,200": { state: NAN } });
  const fine = tileOf(0, 1, 0, {});
  const sources = sourcesOf((level, index) => (level === 0 ? (index === 0 ? fine : undefined) : index === 0 ? coarse : undefined), { from: 0, to: 512 }, 0, 4, 0);
  expect(sources.map(({ tile, from, to }) => [tile.level, from, to])).toEqual([[0, 0, 256], [1, 256, 512]]);
  expect(marksOf(new Map([[0, sources]])).map(({ from, to }) => [from, to])).toEqual([[400, 402]]);
});
