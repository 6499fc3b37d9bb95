import { expect, test } from "vitest";
import { NARROWEST, around, clamp, follow, pan, span, stepsInside, whole, zoom } from "./steps";

const ALL = whole(0, 999);

test("a run's window covers its last step, and is never empty", () => {
  expect(ALL).toEqual({ from: 0, to: 1000 });
  expect(whole(0, -1)).toEqual({ from: 0, to: 1 });
});

test("zooming keeps the step under the pointer where it is", () => {
  const closer = zoom(ALL, 0.5, 250, ALL);
  expect(span(closer)).toBe(500);
  expect((250 - closer.from) / span(closer)).toBeCloseTo(0.25);
});

test("zooming stops at the run and at the narrowest window", () => {
  expect(zoom({ from: 100, to: 900 }, 10, 500, ALL)).toEqual(ALL);
  expect(span(zoom(ALL, 1e-6, 500, ALL))).toBe(NARROWEST);
  expect(zoom(whole(0, 1), 0.01, 1, whole(0, 1))).toEqual({ from: 0, to: 2 });
});

test("panning stops at the ends", () => {
  expect(pan({ from: 10, to: 110 }, -50, ALL)).toEqual({ from: 0, to: 100 });
  expect(pan({ from: 800, to: 900 }, 5000, ALL)).toEqual({ from: 900, to: 1000 });
});

test("a window around a step lies inside the run", () => {
  expect(around(500, 65, ALL)).toEqual({ from: 468, to: 533 });
  expect(around(999, 64, ALL)).toEqual({ from: 936, to: 1000 });
  expect(clamp({ from: -50, to: 5000 }, ALL)).toEqual(ALL);
});

test("a window at the right edge follows the growing run, another stays", () => {
  const grown = whole(0, 1099);
  expect(follow({ from: 900, to: 1000 }, ALL, grown)).toEqual({ from: 1000, to: 1100 });
  expect(follow({ from: 100, to: 200 }, ALL, grown)).toEqual({ from: 100, to: 200 });
});

test("whole steps of which any part is inside", () => {
  expect(stepsInside({ from: 0, to: 1000 })).toEqual({ first: 0, last: 999 });
  expect(stepsInside({ from: 10.5, to: 12.5 })).toEqual({ first: 10, last: 12 });
});
