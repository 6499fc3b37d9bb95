import { expect, test } from "vitest";
import { decadeTicks, stepTicks } from "./axis";

test("steps are ticked in the middle of their columns, never between them", () => {
  expect(stepTicks({ from: 0, to: 2000 }, 500).map((tick) => tick.step)).toEqual([0, 500, 1000, 1500]);
  expect(stepTicks({ from: 7, to: 11 }, 900).map((tick) => tick.position)).toEqual([7.5, 8.5, 9.5, 10.5]);
});

test("decades are whole and no more than asked for", () => {
  expect(decadeTicks(-2.5, 2.2, 10)).toEqual([-2, -1, 0, 1, 2]);
  expect(decadeTicks(-20, 20, 5)).toEqual([-18, -9, 0, 9, 18]);
  expect(decadeTicks(0.1, 0.9, 5)).toEqual([]);
});
