import { expect, test } from "vitest";
import { tileOf } from "../chart/fixture";
import type { Tile } from "../model/decode";
import type { TileKey } from "../model/tiles";
import { TileStore } from "./tile_store";

interface Request {
  readonly key: TileKey;
  readonly signal: AbortSignal;
  readonly resolve: (tile: Tile) => void;
  readonly reject: (error: unknown) => void;
}

function key(tile: number): TileKey {
  return { run: "r", attempt: null, kind: "weight", level: 0, tile, block: 0 };
}

function made() {
  const requests: Request[] = [];
  const errors: unknown[] = [];
  let arrivals = 0;
  const store = new TileStore(
    (asked, signal) => new Promise((resolve, reject) => requests.push({ key: asked, signal, resolve, reject })),
    () => arrivals++,
    (error) => errors.push(error),
  );
  return { store, requests, errors, arrivals: () => arrivals };
}

const settle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));

test("asks for a few at a time, most urgent first, and for none twice", async () => {
  const { store, requests, arrivals } = made();
  const keys = [0, 1, 2, 3, 4, 5].map(key);
  store.want(keys, "v1");
  store.want(keys, "v1");
  expect(requests.map((request) => request.key.tile)).toEqual([0, 1, 2, 3]);
  const tile = tileOf(0, 1, 0, {});
  requests[0]!.resolve(tile);
  await settle();
  expect(store.get(key(0))).toBe(tile);
  expect(arrivals()).toBe(1);
  expect(requests.map((request) => request.key.tile)).toEqual([0, 1, 2, 3, 4]);
  expect(store.waiting).toBe(true);
});

test("what is not wanted any more is aborted, and its late answer is not taken", async () => {
  const { store, requests, arrivals } = made();
  store.want([key(0)], "v1");
  store.want([key(1)], "v1");
  expect(requests[0]!.signal.aborted).toBe(true);
  requests[0]!.resolve(tileOf(0, 1, 0, {}));
  await settle();
  expect(store.get(key(0))).toBeUndefined();
  expect(arrivals()).toBe(0);
});

test("after the run changed the old tile stays on show until its successor is here", async () => {
  const { store, requests } = made();
  const [old, young] = [tileOf(0, 1, 0, {}), tileOf(0, 1, 0, {})];
  store.want([key(0)], "v1");
  requests[0]!.resolve(old);
  await settle();
  expect(store.waiting).toBe(false);
  store.want([key(0)], "v2");
  expect(store.get(key(0))).toBe(old);
  expect(store.waiting).toBe(true);
  requests[1]!.resolve(young);
  await settle();
  expect(store.get(key(0))).toBe(young);
});

test("a failure is told, not repeated for the same version, and leaves the old tile", async () => {
  const { store, requests, errors } = made();
  store.want([key(0)], "v1");
  requests[0]!.reject(new Error("gone"));
  await settle();
  store.want([key(0)], "v1");
  expect(errors).toEqual([new Error("gone")]);
  expect(requests.length).toBe(1);
  store.want([key(0)], "v2");
  expect(requests.length).toBe(2);
});
