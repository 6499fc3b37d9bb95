import { expect, test } from "vitest";
import { formatAgo, formatCounts, formatDecade, formatNumber, formatShape, formatShare, formatSteps, fromJson } from "./format";

test("numbers", () => {
  expect([0, 1, 12.3456, -0.5, 1234.56, 99999].map(formatNumber)).toEqual(["0", "1", "12.35", "−0.5", "1235", "100000"]);
  expect([1e5, 2.5e-7, -3.25e38, 1e-300].map(formatNumber)).toEqual(["1e5", "2.5e−7", "−3.25e38", "1e−300"]);
  expect([NaN, Infinity, -Infinity].map(formatNumber)).toEqual(["NaN", "+Inf", "−Inf"]);
});

test("numbers of strict JSON", () => {
  expect(fromJson("NaN")).toBeNaN();
  expect(fromJson("-Infinity")).toBe(-Infinity);
  expect(fromJson(2)).toBe(2);
  expect(fromJson(null)).toBeUndefined();
});

test("decades", () => {
  expect([-12, -1, 0, 2, 3, 38].map(formatDecade)).toEqual(["10⁻¹²", "0.1", "1", "100", "10³", "10³⁸"]);
});

test("shares, steps, shapes and counts", () => {
  expect([0, 0.00001, 0.5, 1].map(formatShare)).toEqual(["0 %", "<0.1 %", "50.0 %", "100 %"]);
  expect(formatSteps(5, 5)).toBe("step 5");
  expect(formatSteps(0, 1999)).toBe("steps 0–1,999");
  expect([[784, 128], [-1, 10], []].map(formatShape)).toEqual(["784 × 128", "? × 10", "scalar"]);
  expect(formatShape(null)).toBe("shape unknown");
  expect(formatCounts({ nan: 128, pos_inf: 0, neg_inf: 3, size: 4096 })).toBe("128 NaN, 3 −Inf of 4,096");
  expect(formatCounts({ nan: 0, pos_inf: 0, neg_inf: 0, size: 4 })).toBe("");
});

test("ages", () => {
  expect([2, 60, 600, 7200, 400_000].map(formatAgo)).toEqual(["just now", "60 s ago", "10 min ago", "2 h ago", "5 days ago"]);
});
