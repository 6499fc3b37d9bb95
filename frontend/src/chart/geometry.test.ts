import { expect, test } from "vitest";
import { areaAt, layOut, positionAt, rowAt, scrollTo, visibleRows, xOf, yOf } from "./geometry";
import { labelsOf } from "./labels";
import type { TensorRow } from "../model/types";

const SPACE = { width: 800, tallest: 400, names: 200 };
const WINDOW = { from: 100, to: 300 };

test("positions and pixels are inverse", () => {
  const geometry = layOut(SPACE, 20, "fit", 0, WINDOW);
  for (const position of [100, 123.4, 300]) expect(positionAt(geometry, xOf(geometry, position))).toBeCloseTo(position);
  for (const row of [0, 7, 19]) expect(rowAt(geometry, yOf(geometry, row) + 1)).toBe(row);
  expect(rowAt(geometry, geometry.plot.y - 1)).toBeUndefined();
});

test("few rows are not blown up, many fit, and readable ones scroll", () => {
  expect(layOut(SPACE, 3, "fit", 0, WINDOW).rowHeight).toBe(22);
  const fit = layOut(SPACE, 1000, "fit", 0, WINDOW);
  expect(fit.rowHeight).toBeCloseTo(0.4);
  expect(visibleRows(fit)).toEqual({ first: 0, last: 999 });
  const tall = layOut(SPACE, 1000, "readable", 1e9, WINDOW);
  expect([tall.rowHeight, tall.scroll]).toEqual([16, 16_000 - 400]);
  expect(visibleRows(tall)).toEqual({ first: 975, last: 999 });
  expect(scrollTo(tall, 980)).toBe(tall.scroll);
  expect(scrollTo(tall, 0)).toBe(0);
});

test("areas", () => {
  const geometry = layOut(SPACE, 20, "fit", 0, WINDOW);
  const middle = geometry.plot.y + 20;
  expect([[10, middle], [400, middle], [795, middle], [400, 5], [400, geometry.height - 2]].map(([x, y]) => areaAt(geometry, x!, y!))).toEqual(["names", "plot", "rail", "flags", "none"]);
});

test("where rows are slim, bad ones are named before others and no two names touch", () => {
  const rows: TensorRow[] = Array.from({ length: 1000 }, (_, i) => ({ row: i, tag: `weight/l${i}/k`, name: `l${i}/k`, layer: `l${i}`, layer_class: "", dtype: "", shape: null, order: i, trainable: true }));
  const geometry = layOut(SPACE, rows.length, "fit", 0, WINDOW);
  const labels = labelsOf(geometry, rows, new Set([333, 901]), new Set());
  expect(labels.filter((label) => label.bad).map((label) => label.row)).toEqual([333, 901]);
  const gaps = labels.slice(1).map((label, i) => label.y - labels[i]!.y);
  expect(Math.min(...gaps)).toBeGreaterThanOrEqual(13);
  expect(labels.length).toBeGreaterThan(20);
});
