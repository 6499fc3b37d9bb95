import { expect, test } from "vitest";
import { neighbourhoodOf, neighbourhoodText, pictureOf, wrapName } from "./neighbourhood";
import type { GraphOp } from "./types";

const GRAPH: readonly GraphOp[] = [
  { role: "producer", op_type: "SelectV2", layer: "attention", stage: "forward", state: ["inf"] },
  { role: "origin", op_type: "Softmax", layer: "attention", stage: "forward", state: ["nan"] },
  { role: "consumer", op_type: "Mul", layer: null, stage: "backward", state: ["nan"] },
  { role: "consumer", op_type: "BatchMatMulV2", layer: "attention", stage: "forward", state: ["nan", "inf"] },
  { role: "consumer", op_type: "Mul", layer: "", stage: "backward", state: ["nan"] },
];

test("equal neighbours are one", () => {
  const found = neighbourhoodOf(GRAPH)!;
  expect(found.consumers.map(({ op, times }) => [op, times])).toEqual([["Mul", 2], ["BatchMatMulV2", 1]]);
  expect(neighbourhoodText(found)).toBe(
    "From SelectV2 in attention (forward, Inf). Softmax in attention (forward, NaN) made the first bad value. It went to 2 times Mul (backward, NaN); BatchMatMulV2 in attention (forward, NaN, Inf).",
  );
});

test("without an origin there is nothing to draw", () => {
  expect(neighbourhoodOf(undefined)).toBeUndefined();
  expect(neighbourhoodOf(GRAPH.slice(0, 1))).toBeUndefined();
});

test("columns from left to right, the origin in the middle, nothing over anything", () => {
  const { boxes, edges, heads, width, height } = pictureOf(neighbourhoodOf(GRAPH)!);
  const [producer, origin, first, second] = boxes;
  expect(producer!.x + producer!.width).toBeLessThan(origin!.x);
  expect(origin!.x + origin!.width).toBeLessThan(first!.x);
  expect(first!.y + first!.height).toBeLessThan(second!.y);
  expect(origin!.y + origin!.height / 2).toBeCloseTo((first!.y + second!.y + second!.height) / 2);
  expect(edges.map(({ from, to }) => `${from.node.op}>${to.node.op}`)).toEqual(["SelectV2>Softmax", "Softmax>Mul", "Softmax>BatchMatMulV2"]);
  for (const box of boxes) expect(box.x + box.width <= width && box.y + box.height <= height).toBe(true);
  expect(heads.map(({ text }) => text)).toEqual(["inputs from", "first bad value", "used by"]);
  expect(boxes.map(({ place }) => place)).toEqual(["attention", "attention", "backward", "attention"]);
});

test("an origin by itself needs one column", () => {
  const picture = pictureOf(neighbourhoodOf(GRAPH.slice(1, 2))!);
  expect(picture.edges).toEqual([]);
  expect(picture.heads.map(({ x }) => x)).toEqual([1]);
});

test("long names are wrapped where a word begins", () => {
  expect(wrapName("BatchMatMulV2", 14)).toEqual(["BatchMatMulV2"]);
  expect(wrapName("FusedBatchNormGradV3", 14)).toEqual(["FusedBatchNorm", "GradV3"]);
  expect(wrapName("SparseSoftmaxCrossEntropyWithLogits", 14)).toEqual(["SparseSoftmax", "CrossEntropyW…"]);
  expect(wrapName("my_own_operation_of_mine", 14)).toEqual(["my_own_", "operation_of_…"]);
  expect(wrapName("abcdefghijklmnopqrst", 14)).toEqual(["abcdefghijklmn", "opqrst"]);
});
