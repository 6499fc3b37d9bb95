import { expect, test } from "vitest";
import { beginsLayer, counterpart, kindsPresent, leafOf, placeOf, placeOfFinding, placeOfIncident, sharedPath, withoutShared } from "./rows";
import type { Kind, Tables, TensorRow } from "./types";

function row(kind: Kind, name: string, layer: string): TensorRow {
  return { row: 0, tag: `${kind}/${name}`, name, layer, layer_class: "", dtype: "float32", shape: null, order: 0, trainable: false };
}

const TABLES: Tables = {
  version: "1",
  steps: { first: 0, last: 9, count: 10 },
  kinds: {
    weight: [row("weight", "a/kernel", "a"), row("weight", "a/bias", "a"), row("weight", "b/kernel", "b")],
    gradient: [row("gradient", "a/kernel", "a"), row("gradient", "b/kernel", "b")],
    applied: [row("applied", "a/kernel", "a")],
    activation: [row("activation", "b/output", "b")],
    update: [],
    input: [],
  },
  scalars: [],
};

test("names without their layer", () => {
  expect(leafOf(row("weight", "enc/dense/kernel", "enc/dense"))).toBe("kernel");
  expect(leafOf(row("activation", "dense", "dense"))).toBe("");
  expect(leafOf(row("input", "x", ""))).toBe("x");
  expect(leafOf(row("weight", "other", "dense"))).toBe("other");
});

test("where layers begin", () => {
  expect(TABLES.kinds.weight.map((_, index) => beginsLayer(TABLES.kinds.weight, index))).toEqual([true, false, true]);
});

test("a tensor of a report is found by tag, by the kind that its phase touches, or by its layer", () => {
  expect(placeOf(TABLES, "forward", "gradient/a/kernel")).toMatchObject({ kind: "gradient" });
  expect(placeOf(TABLES, "backward", "a/kernel")).toMatchObject({ kind: "gradient" });
  expect(placeOf(TABLES, "weights", "a/kernel")).toMatchObject({ kind: "weight" });
  expect(placeOf(TABLES, "update", "a/kernel")).toMatchObject({ kind: "weight" });
  expect(placeOf(TABLES, "forward", "b/pre_activation", "b")).toMatchObject({ kind: "activation", row: { name: "b/output" } });
  expect(placeOf(TABLES, "loss", "nowhere")).toBeUndefined();
});

test("a finding is about the kind that its rule names", () => {
  expect(placeOfFinding(TABLES, { rule: "vanishing_gradient", tensor: "a/kernel" })).toMatchObject({ kind: "gradient" });
  expect(placeOfFinding(TABLES, { rule: "dead_relu", tensor: "b" })).toMatchObject({ kind: "activation", row: { name: "b/output" } });
  expect(placeOfFinding(TABLES, { rule: "update_ratio", tensor: "a/bias" })).toMatchObject({ kind: "weight" });
  for (const kind of ["weight", "gradient"]) expect(placeOfFinding(TABLES, { rule: "forecast", tensor: "a/kernel", kind })).toMatchObject({ kind });
});

test("an incident in the loss is shown where it spread to", () => {
  const stop = (order: number, phase: string, tensor: string) => ({ order, phase, tensor });
  const incident = { first_step: 1, last_step: null, recovered: false, detected_step: 1, origin: { phase: "loss", layer: "", tensor: "loss" } };
  expect(placeOfIncident(TABLES, { ...incident, spread: [stop(2, "weights", "a/bias"), stop(0, "loss", "loss"), stop(1, "backward", "a/kernel")] })).toMatchObject({ kind: "gradient" });
  expect(placeOfIncident(TABLES, incident)).toBeUndefined();
});

test("an op inside a layer is shown where it spread to, else at its layer", () => {
  const incident = { first_step: 1, last_step: null, recovered: false, detected_step: 1, origin: { phase: "backward", layer: "b", tensor: "b/SqrtGrad" } };
  expect(placeOfIncident(TABLES, { ...incident, spread: [{ order: 0, phase: "backward", tensor: "a/kernel" }] })).toMatchObject({ kind: "gradient", row: { layer: "a" } });
  expect(placeOfIncident(TABLES, incident)).toMatchObject({ row: { layer: "b" } });
  expect(placeOfIncident(TABLES, { ...incident, origin: { phase: "backward", layer: null, tensor: "SqrtGrad" } })).toBeUndefined();
});

test("the kind that a report names comes before what the phase tells", () => {
  expect(placeOf(TABLES, "update", "a/kernel", "", "applied")).toMatchObject({ kind: "applied" });
  expect(placeOf(TABLES, "backward", "a/kernel", "", "loss")).toMatchObject({ kind: "gradient" });
  const incident = { first_step: 1, last_step: null, recovered: false, detected_step: 1, origin: { phase: "update", layer: "a", tensor: "a/kernel", kind: "applied" } };
  expect(placeOfIncident(TABLES, incident)).toMatchObject({ kind: "applied" });
  const wrote = { ...incident, origin: { ...incident.origin, kind: "update" }, spread: [{ order: 0, phase: "weights", tensor: "a/kernel", kind: "weight" }] };
  expect(placeOfIncident(TABLES, wrote)).toMatchObject({ kind: "weight" });
});

test("a gradient has a counterpart where an optimizer used another", () => {
  const of = (kind: Kind, index: number) => counterpart(TABLES, { kind, row: TABLES.kinds[kind][index]! })?.row.tag;
  expect([of("gradient", 0), of("applied", 0), of("gradient", 1), of("weight", 0)]).toEqual(["applied/a/kernel", "gradient/a/kernel", undefined, undefined]);
});

test("the kinds that have rows", () => {
  expect(kindsPresent(TABLES)).toEqual(["weight", "gradient", "applied", "activation"]);
});

test("what all paths share tells none of them apart", () => {
  const rows = ["enc/block_1/attn/proj", "enc/block_2/attn/proj"].map((layer) => row("weight", `${layer}/kernel`, layer));
  const shared = sharedPath(rows);
  expect(shared).toEqual({ head: "enc/", tail: "/attn/proj" });
  expect(withoutShared("enc/block_1/attn/proj", shared)).toBe("block_1");
  expect(withoutShared("head", shared)).toBe("head");
  expect(sharedPath(rows.slice(0, 1))).toEqual({ head: "", tail: "" });
  expect(sharedPath(["a", "a/b"].map((layer) => row("weight", layer, layer)))).toEqual({ head: "", tail: "" });
});
