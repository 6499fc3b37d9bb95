/** Rows of the heatmap: their names, where a layer begins, and finding a tensor by what a report calls it. */
import { KINDS, type Kind, type Tables, type TensorRow } from "./types";

/** The name without its layer: "kernel" of "conv2d_3/kernel". The whole name where they do not nest. */
export function leafOf(row: TensorRow): string {
  const prefix = `${row.layer}/`;
  return row.layer !== "" && row.name.startsWith(prefix) ? row.name.slice(prefix.length) : row.name === row.layer ? "" : row.name;
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

/** Where the tensor that a report names stands: by tag, else by name in the kind that its phase touches, else by layer. */
export function placeOf(tables: Tables, phase: string, tensor: string, layer = ""): Place | undefined {
  const tagged = placeOfTag(tables, tensor);
  if (tagged) return tagged;
  const first = KIND_OF_PHASE[phase];
  const kinds = first === undefined ? KINDS : [first, ...KINDS.filter((kind) => kind !== first)];
  for (const kind of kinds) {
    const row = tables.kinds[kind].find((candidate) => candidate.name === tensor);
    if (row) return { kind, row };
  }
  if (layer === "") return undefined;
  for (const kind of kinds) {
    const row = tables.kinds[kind].find((candidate) => candidate.layer === layer);
    if (row) return { kind, row };
  }
  return undefined;
}

/** The kinds that have rows at all, in the order of the switch. */
export function kindsPresent(tables: Tables): readonly Kind[] {
  return KINDS.filter((kind) => tables.kinds[kind].length > 0);
}
