import { expect, test } from "vitest";
import { MAX_PINS, START, type Selection, readHash, reduce, writeHash } from "./selection";

const FULL: Selection = {
  run: "cnn/lr=0.1&x #1",
  attempt: 2,
  kind: "gradient",
  window: { from: 10.25, to: 99 },
  pins: ["weight/a,b/kernel", "gradient/ünï&c=d/%2C"],
  stat: "max_abs",
  rows: "readable",
};

test("a link brings back the same view, whatever names look like", () => {
  const hash = writeHash("#nanwatch", FULL);
  expect(readHash(hash)).toEqual(FULL);
  expect(hash.startsWith("#nanwatch&p.nanwatch.run=")).toBe(true);
});

test("only our part of the hash is replaced", () => {
  const hash = writeHash("#nanwatch&p.other.x=1&p.nanwatch.run=old&tag=z", { ...START, run: "new" });
  expect(hash).toBe("#nanwatch&p.other.x=1&tag=z&p.nanwatch.run=new");
});

test("a hash without anything of ours says nothing", () => {
  expect(readHash("#nanwatch")).toBeUndefined();
  expect(readHash("#scalars&p.other.run=x")).toBeUndefined();
});

test("what is malformed in a link is left at its default", () => {
  const hash = "#nanwatch&p.nanwatch.run=a&p.nanwatch.attempt=-1&p.nanwatch.kind=evil&p.nanwatch.steps=9~2&p.nanwatch.stat=%zz&p.nanwatch.rows=9";
  expect(readHash(hash)).toEqual({ ...START, run: "a" });
});

test("no pins by hand and pins taken away are different things", () => {
  expect(readHash(writeHash("", { ...START, run: "a", pins: [] }))?.pins).toEqual([]);
  expect(readHash(writeHash("", { ...START, run: "a", pins: null }))?.pins).toBeNull();
});

test("a click pins, a second one unpins, and pins do not grow without end", () => {
  const one = reduce(START, { do: "pin", tag: "a", shown: [] });
  expect(one.pins).toEqual(["a"]);
  expect(reduce(one, { do: "pin", tag: "a", shown: ["a"] }).pins).toEqual([]);
  const many = Array.from({ length: MAX_PINS }, (_, i) => `t${i}`);
  expect(reduce(one, { do: "pin", tag: "z", shown: many }).pins).toEqual([...many.slice(1), "z"]);
});

test("another run begins with its own view; the same one keeps it", () => {
  expect(reduce(FULL, { do: "run", run: "b" })).toEqual({ ...START, run: "b", stat: "max_abs", rows: "readable" });
  expect(reduce(FULL, { do: "run", run: FULL.run! })).toBe(FULL);
});
