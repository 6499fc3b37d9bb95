import { expect, test } from "vitest";
import { whole } from "./steps";
import { blocksOf, keyText, levelFor, overviewLevel, tilesOf, wanted } from "./tiles";

test("the finest level whose bins are not slimmer than asked", () => {
  expect(levelFor({ from: 0, to: 500 }, 1000, 1)).toBe(0);
  expect(levelFor({ from: 0, to: 1000 }, 1000, 1)).toBe(0);
  expect(levelFor({ from: 0, to: 1001 }, 1000, 1)).toBe(1);
  expect(levelFor({ from: 0, to: 100_000 }, 1000, 1)).toBe(7);
  expect(levelFor({ from: 0, to: 1000 }, 1000, 2)).toBe(1);
});

test("tiles of a window", () => {
  expect(tilesOf({ from: 0, to: 256 }, 0)).toEqual([0]);
  expect(tilesOf({ from: 0, to: 257 }, 0)).toEqual([0, 1]);
  expect(tilesOf({ from: 1000, to: 2000 }, 2)).toEqual([0, 1]);
});

test("blocks of rows", () => {
  expect(blocksOf(0, 255)).toEqual([0]);
  expect(blocksOf(200, 600)).toEqual([0, 1, 2]);
});

test("the overview comes first, then the view from its end, only for rows in sight", () => {
  const bounds = whole(0, 99_999);
  const keys = wanted({ run: "r", attempt: null, kind: "weight" }, { from: 0, to: 600 }, bounds, 0, 600, { first: 300, last: 320 });
  const top = overviewLevel(bounds);
  expect(top).toBe(9);
  expect(keys.map((key) => [key.level, key.tile, key.block])).toEqual([[9, 0, 0], [9, 0, 1], [9, 0, 2], [0, 2, 1], [0, 1, 1], [0, 0, 1]]);
  expect(wanted({ run: "r", attempt: null, kind: "weight" }, bounds, bounds, 9, 0, { first: 0, last: 0 })).toEqual([]);
});

test("keys of different runs and kinds differ", () => {
  const key = { run: "a/1", attempt: null, kind: "weight", level: 1, tile: 2, block: 0 } as const;
  const others = [{ ...key, run: "a" }, { ...key, kind: "update" as const }, { ...key, level: 2 }, { ...key, tile: 1 }, { ...key, block: 1 }, { ...key, attempt: 0 }];
  expect(new Set([key, ...others].map(keyText)).size).toBe(7);
});
