/** Rows of the heatmap: their names, where a layer begins, and finding a tensor by what a report calls it. */
import { KINDS, type Finding, type Incident, type Kind, type Tables, type TensorRow } from "./types";

/** The name without its layer: "kernel" of "conv2d_3/kernel". The whole name where they do not nest. */
export function leafOf(row: TensorRow): string {
  const prefix = `${row.layer}/`;
  return row.layer !== "" && row.name.startsWith(prefix) ? row.name.slice(prefix.length) : row.name === row.layer ? "" : row.name;
}

export interface Shared {
  readonly head: string;
  readonly tail: string;
}

/** Whole path segments that all layers begin and end with: "encoder/" and "/projection". Empty for a single layer. */
export function sharedPath(rows: readonly TensorRow[]): Shared {
  const layers = [...new Set(rows.map((row) => row.layer))].filter((layer) => layer !== "").map((layer) => layer.split("/"));
  const first = layers[0];
  if (!first || layers.length < 2) return { head: "", tail: "" };
  const most = Math.min(...layers.map((layer) => layer.length)) - 1;
  let head = 0;
  while (head < most && layers.every((layer) => layer[head] === first[head])) head++;
  let tail = 0;
  while (tail < most - head && layers.every((layer) => layer.at(-1 - tail) === first.at(-1 - tail))) tail++;
  const join = (parts: readonly string[]): string => parts.join("/");
  return { head: head > 0 ? `${join(first.slice(0, head))}/` : "", tail: tail > 0 ? `/${join(first.slice(-tail))}` : "" };
}

export function withoutShared(layer: string, shared: Shared): string {
  const inside = layer.startsWith(shared.head) && layer.endsWith(shared.tail) && layer.length > shared.head.length + shared.tail.length;
  return inside ? layer.slice(shared.head.length, layer.length - shared.tail.length) : layer;
}

/** True where the row begins a new layer. */
export function beginsLayer(rows: readonly TensorRow[], index: number): boolean {
  return index === 0 || rows[index - 1]?.layer !== rows[index]?.layer;
}

export interface Place {
  readonly kind: Kind;
  readonly row: TensorRow;
}

/** Where a tag stands ("gradient/dense/kernel"), if it is a row of the heatmap. */
export function placeOfTag(tables: Tables, tag: string): Place | undefined {
  for (const kind of KINDS) {
    const row = tables.kinds[kind].find((candidate) => candidate.tag === tag);
    if (row) return { kind, row };
  }
  return undefined;
}

const KIND_OF_PHASE: Readonly<Record<string, Kind>> = {
  input: "input",
  forward: "activation",
  backward: "gradient",
  update: "update",
  weights: "weight",
};

/** Where the tensor that a report names stands: by tag, else by its kind and name, else by name in the kind that its phase touches, else by layer. */
export function placeOf(tables: Tables, phase: string, tensor: string | null, layer: string | null = "", named: string | null = ""): Place | undefined {
  const tagged = tensor === null ? undefined : (placeOfTag(tables, tensor) ?? placeOfTag(tables, `${named}/${tensor}`));
  if (tagged) return tagged;
  const first = KIND_OF_PHASE[phase];
  const kinds = first === undefined ? KINDS : [first, ...KINDS.filter((kind) => kind !== first)];
  for (const kind of kinds) {
    const row = tables.kinds[kind].find((candidate) => candidate.name === tensor);
    if (row) return { kind, row };
  }
  if (layer === null || layer === "") return undefined;
  for (const kind of kinds) {
    const row = tables.kinds[kind].find((candidate) => candidate.layer === layer);
    if (row) return { kind, row };
  }
  return undefined;
}

/** Where a finding's tensor stands: in the kind that it names, else in the one that its rule ("vanishing_gradient", "dead_relu") tells. */
export function placeOfFinding(tables: Tables, { rule, tensor, kind }: Pick<Finding, "rule" | "tensor" | "kind">): Place | undefined {
  const known = KINDS.find((candidate) => candidate === kind);
  const row = known && tables.kinds[known].find((candidate) => candidate.name === tensor);
  if (known && row) return { kind: known, row };
  const phase = /gradient/.test(rule) ? "backward" : /relu|activation/.test(rule) ? "forward" : "";
  return placeOf(tables, phase, tensor, tensor);
}

/** Where an incident began; where that is no row (an op inside a layer), the first one that its damage reached; else its layer. */
export function placeOfIncident(tables: Tables, { origin, spread }: Incident): Place | undefined {
  const ordered = [...(spread ?? [])].sort((a, b) => a.order - b.order);
  // Weights are measured at every step, updates at few: where the update reached the weight at once, that is where it shows.
  const wrote = origin.phase === "update" && ordered[0]?.phase === "weights" && ordered[0].tensor === origin.tensor;
  const first = placeOf(tables, wrote ? "weights" : origin.phase, origin.tensor, "", wrote && origin.kind === "update" ? "weight" : origin.kind);
  if (first) return first;
  for (const stop of ordered) {
    const place = placeOf(tables, stop.phase, stop.tensor, "", stop.kind);
    if (place) return place;
  }
  return placeOf(tables, origin.phase, null, origin.layer);
}

/** The gradient of a variable before or after it was clipped, scaled or summed up: that of the other kind, where a run has both. */
export function counterpart(tables: Tables, { kind, row }: Place): Place | undefined {
  const other = kind === "gradient" ? "applied" : kind === "applied" ? "gradient" : undefined;
  return other && placeOfTag(tables, `${other}/${row.name}`);
}

/** The kinds that have rows at all, in the order of the switch. */
export function kindsPresent(tables: Tables): readonly Kind[] {
  return KINDS.filter((kind) => tables.kinds[kind].length > 0);
}
