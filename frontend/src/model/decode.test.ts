import { expect, test } from "vitest";
import { BINS, decodeSeries, decodeTile } from "./decode";

function tileBody(rows: number, firstStep: number): DataView {
  const view = new DataView(new ArrayBuffer(24 + 5 * rows * BINS));
  [..."NWT1"].forEach((letter, i) => view.setUint8(i, letter.charCodeAt(0)));
  view.setUint32(4, 3, true);
  view.setUint32(8, rows, true);
  view.setUint32(12, BINS, true);
  view.setBigInt64(16, BigInt(firstStep), true);
  return view;
}

test("a tile's planes and header", () => {
  const view = tileBody(2, 2 ** 40);
  view.setUint16(24 + 2 * (BINS + 7), 111, true);
  view.setUint16(24 + 2 * (2 * BINS + 5), 222, true);
  view.setUint8(24 + 4 * 2 * BINS + BINS + 9, 1);
  view.setUint8(24 + 4 * 2 * BINS + 2, 16);
  const tile = decodeTile(view.buffer as ArrayBuffer);
  expect(tile).toMatchObject({ level: 3, rows: 2, firstStep: 2 ** 40 });
  expect(tile.low[BINS + 7]).toBe(111);
  expect(tile.high[5]).toBe(222);
  expect([...tile.bad]).toEqual([BINS + 9]);
});

test("a tile that is not what it claims is refused", () => {
  expect(() => decodeTile(new ArrayBuffer(3))).toThrow("shorter than its header");
  const wrong = tileBody(1, 0);
  wrong.setUint8(0, 88);
  expect(() => decodeTile(wrong.buffer as ArrayBuffer)).toThrow('"XWT1"');
  const short = tileBody(1, 0);
  short.setUint32(8, 2, true);
  expect(() => decodeTile(short.buffer as ArrayBuffer)).toThrow("2584 are announced");
  const bins = tileBody(1, 0);
  bins.setUint32(12, 128, true);
  expect(() => decodeTile(bins.buffer as ArrayBuffer)).toThrow("128 bins");
});

test("a series' columns", () => {
  const view = new DataView(new ArrayBuffer(16 + 25 * 2));
  [..."NWS1"].forEach((letter, i) => view.setUint8(i, letter.charCodeAt(0)));
  view.setUint32(4, 2, true);
  view.setUint32(8, 10, true);
  [0, 10, 1.5, NaN, 2.5, NaN].forEach((value, i) => view.setFloat64(16 + 8 * i, value, true));
  view.setUint8(16 + 24 * 2 + 1, 1);
  const series = decodeSeries(view.buffer as ArrayBuffer);
  expect(series.stepsPerPoint).toBe(10);
  expect([...series.step]).toEqual([0, 10]);
  expect([...series.low]).toEqual([1.5, NaN]);
  expect([...series.high]).toEqual([2.5, NaN]);
  expect([...series.state]).toEqual([0, 1]);
  view.setUint32(4, 3, true);
  expect(() => decodeSeries(view.buffer as ArrayBuffer)).toThrow("66 bytes where 91");
});
