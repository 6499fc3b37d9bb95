import { expect, test } from "vitest";
import { baseOf, folderOf, howKnown, isLibrary, lineOf, linesOf, makerOf, operandRow, samplesText, trialText } from "./origin";
import type { Incident, Operand, Origin, Replay } from "./types";

const ORIGIN: Origin = { phase: "backward", layer: null, tensor: "SqrtGrad", op_type: "SqrtGrad", precision: "op", source: { file: "/home/me/train.py", line: 34, function: "rmse", code: "return tf.sqrt(e)" } };

function incident(replay: Replay | null, origin: Partial<Origin> = {}): Incident {
  return { first_step: 9, last_step: null, recovered: false, detected_step: 9, origin: { ...ORIGIN, ...origin }, replay };
}

test("the op, and the forward op whose gradient it is", () => {
  expect(makerOf(incident({ outcome: "reproduced", forward_op: "Sqrt" }))).toEqual({ op: "SqrtGrad", gradientOf: "Sqrt" });
  expect(makerOf(incident(null))).toEqual({ op: "SqrtGrad", gradientOf: "" });
  expect(makerOf(incident({ outcome: "reproduced", forward_op: "Mul" }, { op_type: "Mul" }))).toEqual({ op: "Mul", gradientOf: "" });
  expect(makerOf(incident(null, { op_type: null }))).toBeUndefined();
  expect(makerOf(incident(null, { phase: "input" }))).toBeUndefined();
});

test("the line", () => {
  expect(lineOf(ORIGIN.source)).toBe("train.py:34");
  expect(lineOf({ file: "C:\\me\\a.py", line: 0 })).toBe("a.py");
  expect(lineOf(null)).toBe("");
  expect(["/v/lib/python3.11/site-packages/keras/losses.py", "/home/me/site-packages.py"].map(isLibrary)).toEqual([true, false]);
  expect(["/home/me/train.py", "me/train.py", "/train.py", "train.py", "C:\\my work\\train.py"].map((path) => folderOf(path) + baseOf(path))).toEqual(["…/me/train.py", "me/train.py", "train.py", "train.py", "…/my work/train.py"]);
});

test("the user's line stands before the library's", () => {
  const source = { file: "/v/site-packages/keras/losses.py", line: 7, function: "square", code: "return tf.square(x)" };
  const caller = { file: "/home/me/train.py", line: 32, function: "main" };
  const stack = [{ ...caller, code: "model.fit(x)" }];
  expect(linesOf(incident({ outcome: "reproduced", library: caller, stack }, { source }))).toEqual({ own: { ...caller, code: "model.fit(x)" }, library: source });
  expect(linesOf(incident({ outcome: "reproduced", library: source }))).toEqual({ own: ORIGIN.source, library: source });
  expect(linesOf(incident(null))).toEqual({ own: ORIGIN.source, library: undefined });
  expect(linesOf(incident(null, { phase: "input", source })).own).toBeUndefined();
});

test("the samples", () => {
  expect(samplesText({ ...ORIGIN, samples: [3] })).toBe("sample 3 of the batch");
  expect(samplesText({ ...ORIGIN, samples: Array.from({ length: 14 }, (_, n) => n) })).toBe("samples 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, … of the batch");
  const operand = { name: "x", dtype: "float32", shape: [2, 4], min: 0, max: 1, nan: 0, inf: 0, zero: 0 };
  expect(samplesText({ ...ORIGIN, samples: [0, 1], inputs: [operand, { ...operand, shape: null }] })).toBe("all 2 samples of the batch");
  expect(samplesText({ ...ORIGIN, samples: [0], inputs: [operand] })).toBe("sample 0 of the batch");
  expect(samplesText({ ...ORIGIN, samples: [0, 5], inputs: [{ ...operand, shape: [2, 8] }] })).toBe("samples 0, 5 of the batch"); // 2 rows of something else
  expect(samplesText({ ...ORIGIN, samples: [] })).toBe("");
});

test("what went into the op", () => {
  const operand: Operand = { name: "Sqrt", dtype: "float32", shape: [32], min: 0, max: 1.9641, nan: 0, inf: 0, zero: 7, negative: 0 };
  expect(operandRow(operand)).toEqual({ name: "Sqrt", type: "float32, 32", range: "0 to 1.964", counts: [{ text: "7 zeros", bad: false }], bad: false });
  const masked = operandRow({ ...operand, min: -1, max: -1, inf: 30, nan: 1, zero: 0, negative: 31 });
  expect(masked.range).toBe("−1");
  expect(masked.counts.map(({ text, bad }) => `${text}${bad ? "!" : ""}`)).toEqual(["1 NaN!", "30 Inf!", "31 negative"]);
  expect(masked.bad).toBe(true);
  expect(operandRow({ ...operand, min: 0, max: 0, inf: 32, zero: 0 })).toMatchObject({ range: "nothing finite", counts: [{ text: "all 32 Inf", bad: true }] });
  expect(operandRow({ ...operand, dtype: "bool", zero: 0 }).range).toBe("no numbers");
  expect(operandRow({ ...operand, shape: [0, 4], min: 0, max: 0, zero: 0 }).range).toBe("empty");
  expect(operandRow({ ...operand, shape: null, min: "-Infinity", max: 2, zero: 1 })).toMatchObject({ type: "float32, shape unknown", range: "−Inf to 2", counts: [{ text: "1 zero", bad: false }] });
});

test("how it is known", () => {
  expect(howKnown(incident({ outcome: "reproduced", steps: 9, seconds: 0.371 }))).toBe("Found by running 9 steps again, the last one op by op in 0.37 s.");
  expect(howKnown(incident({ outcome: "reproduced", why: null, steps: 1, seconds: null }))).toBe("Found by running the step again, op by op.");
  expect(howKnown(incident({ outcome: "not reproduced", why: "only a compiled kernel fails" }))).toBe("Running the step again did not bring it back: only a compiled kernel fails");
  expect(howKnown(incident({ outcome: "refused", error: "label 12 is outside [0, 10)" }))).toBe("Run again op by op, this op refused its inputs: label 12 is outside [0, 10)");
  expect(howKnown(incident({ outcome: "cut_short" }))).toBe("Running the step again: cut short.");
  expect(howKnown(incident({ outcome: "not reproduced" }, { phase: "weights" }))).toBe("");
  expect(howKnown(incident(null))).toBe("");
  expect(howKnown(incident(null, { precision: "layer" }))).toContain("not run again op by op");
});

test("what came of a remedy", () => {
  expect(trialText({ outcome: "finite", steps: 64, control: "nonfinite" })).toEqual({ mark: "good", text: "tried: stayed finite for 64 steps", control: "without it they blew up again" });
  expect(trialText({ outcome: "finite", steps: 1, control: "finite" })).toMatchObject({ text: "tried: stayed finite for 1 step", control: "but so they did without it" });
  expect(trialText({ outcome: "nonfinite", steps: 3, control: "nonfinite" })).toEqual({ mark: "bad", text: "tried: blew up all the same within 3 steps", control: "" });
  expect(trialText({ outcome: "inconclusive" }).mark).toBe("unsure");
  expect([trialText({ outcome: "not_run", steps: 0, control: "not_run" }), trialText(null)].map(({ text }) => text)).toEqual(["not tried", "not tried"]);
});
