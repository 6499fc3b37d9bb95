import { expect, test } from "vitest";
import type { Series } from "../model/decode";
import { NAN, POS_INF } from "../model/magnitude";
import { aligned, plotted, stretchesOf, worthLogarithm } from "./line";

function series(points: readonly (readonly [step: number, low: number, high: number, state?: number])[], stepsPerPoint = 1): Series {
  return {
    stepsPerPoint,
    step: Float64Array.from(points, (point) => point[0]),
    low: Float64Array.from(points, (point) => point[1]),
    high: Float64Array.from(points, (point) => point[2]),
    state: Uint8Array.from(points, (point) => point[3] ?? 16),
  };
}

test("a line breaks where points do not adjoin, and where nothing was finite", () => {
  const drawn = plotted(series([[0, 1, 1], [1, 2, 2], [2, NaN, NaN, NAN], [3, 4, 4], [90, 5, 5]]), false);
  expect(drawn.x).toEqual([0.5, 1.5, 2.5, 3.5, 46.5, 90.5]);
  expect(drawn.high).toEqual([1, 2, null, 4, null, 5]);
});

test("statistics of every tenth step are one line, not gaps", () => {
  expect(plotted(series([[0, 1, 1], [10, 2, 2], [20, 3, 3], [30, 3, 3]]), false).high).toEqual([1, 2, 3, 3]);
});

test("logarithms are taken where values are positive and differ a lot", () => {
  expect(worthLogarithm(series([[0, 1, 1], [1, 1e6, 1e6]]))).toBe(true);
  expect(worthLogarithm(series([[0, 1, 1], [1, 2, 2]]))).toBe(false);
  expect(worthLogarithm(series([[0, -1, 1e6]]))).toBe(false);
  expect(plotted(series([[0, 0, 1e3], [1, 1e-300, 1e300]]), true)).toMatchObject({ low: [null, -300], high: [3, 300] });
});

test("trouble is gathered in stretches of one state, whatever lies between ends it", () => {
  const troubled = series([[0, 1, 1], [1, NaN, NaN, NAN], [2, NaN, NaN, NAN], [3, 1, 1, POS_INF], [4, 1, 1], [5, 1, 1, POS_INF]]);
  expect(stretchesOf(troubled)).toEqual([{ from: 1, to: 3, state: NAN }, { from: 3, to: 4, state: POS_INF }, { from: 5, to: 6, state: POS_INF }]);
});

test("a second line shares steps and scale with the first, measured at its own steps", () => {
  const [first, second] = [series([[0, 100, 100], [1, 200, 200], [2, 400, 400]]), series([[0, 1, 1], [2, NaN, NaN, NAN]])];
  expect(worthLogarithm(first)).toBe(false);
  expect(worthLogarithm(first, second)).toBe(true);
  expect(aligned({ series: first, beside: second, flags: [], logarithmic: false })).toEqual([[0.5, 1.5, 2.5], [100, 200, 400], [100, 200, 400], [1, undefined, null]]);
  expect(aligned({ series: first, beside: undefined, flags: [], logarithmic: false })).toHaveLength(3);
});
