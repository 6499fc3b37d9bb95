/** The ops around an origin as a small picture: who made its inputs, who used its output, and where each is drawn. */
import type { GraphOp } from "./types";

/** The neighbours of an op in one role; equal ones are one with a count. */
export interface GraphNode {
  readonly op: string;
  readonly layer: string;
  readonly stage: string;
  readonly state: readonly string[];
  readonly times: number;
}

export interface Neighbourhood {
  readonly producers: readonly GraphNode[];
  readonly origin: GraphNode;
  readonly consumers: readonly GraphNode[];
}

/** undefined where the replay told of no origin among its ops. */
export function neighbourhoodOf(graph: readonly GraphOp[] | undefined): Neighbourhood | undefined {
  const inRole = (role: string): readonly GraphNode[] => merged((graph ?? []).filter((op) => op.role === role));
  const [origin] = inRole("origin");
  return origin && { producers: inRole("producer"), origin, consumers: inRole("consumer") };
}

function merged(ops: readonly GraphOp[]): readonly GraphNode[] {
  const found = new Map<string, GraphNode>();
  for (const { op_type: op, layer, stage = "", state = [] } of ops) {
    const key = JSON.stringify([op, layer ?? "", stage, state]);
    const times = (found.get(key)?.times ?? 0) + 1;
    found.set(key, { op, layer: layer ?? "", stage, state, times });
  }
  return [...found.values()];
}

/** "NaN, Inf" or "finite". */
export function stateText({ state }: GraphNode): string {
  const names: Readonly<Record<string, string>> = { nan: "NaN", inf: "Inf" };
  return state.length === 0 ? "finite" : state.map((word) => names[word] ?? word).join(", ");
}

/** The picture in words, for those who do not see it. */
export function neighbourhoodText({ producers, origin, consumers }: Neighbourhood): string {
  const told = (node: GraphNode): string => `${node.times > 1 ? `${node.times} times ` : ""}${node.op}${node.layer === "" ? "" : ` in ${node.layer}`} (${[node.stage, stateText(node)].filter((part) => part !== "").join(", ")})`;
  const list = (nodes: readonly GraphNode[]): string => nodes.map(told).join("; ");
  return [
    producers.length > 0 ? `From ${list(producers)}.` : "",
    `${told(origin)} made the first bad value.`,
    consumers.length > 0 ? `It went to ${list(consumers)}.` : "",
  ]
    .filter((part) => part !== "")
    .join(" ");
}

export interface Box {
  readonly node: GraphNode;
  readonly role: "producer" | "origin" | "consumer";
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  /** The op's name, wrapped; then its layer, or the stage where there is no layer; then its state. */
  readonly name: readonly string[];
  readonly place: string;
}

export interface Edge {
  readonly from: Box;
  readonly to: Box;
}

export interface Picture {
  readonly width: number;
  readonly height: number;
  readonly boxes: readonly Box[];
  readonly edges: readonly Edge[];
  /** Above each column, at its left edge. */
  readonly heads: readonly { readonly x: number; readonly text: string }[];
}

const COLUMN = 106;
const BETWEEN = 21;
const HEAD = 18;
const LINE = 14;
const PADDING = 5;
const APART = 8;
const LETTERS = 14;

/** Producers, origin and consumers in columns from left to right, each centred on the origin. Lengths in CSS pixels. */
export function pictureOf({ producers, origin, consumers }: Neighbourhood): Picture {
  const columns = [
    { role: "producer", text: "inputs from", nodes: producers },
    { role: "origin", text: "first bad value", nodes: [origin] },
    { role: "consumer", text: "used by", nodes: consumers },
  ] as const;
  const drawn = columns.filter(({ nodes }) => nodes.length > 0);
  const sized = drawn.map(({ role, nodes }) => nodes.map((node) => ({ node, role, ...lines(node) })));
  const heights = sized.map((column) => column.reduce((sum, { height }) => sum + height + APART, -APART));
  const tallest = Math.max(...heights);
  const boxes = sized.flatMap((column, index) => {
    let y = HEAD + (tallest - heights[index]!) / 2;
    return column.map((box): Box => {
      const placed = { ...box, x: 1 + index * (COLUMN + BETWEEN), y, width: COLUMN };
      y += box.height + APART;
      return placed;
    });
  });
  const centre = boxes.find(({ role }) => role === "origin")!;
  const edges = boxes.filter((box) => box !== centre).map((box) => (box.role === "producer" ? { from: box, to: centre } : { from: centre, to: box }));
  const heads = drawn.map(({ text }, index) => ({ x: 1 + index * (COLUMN + BETWEEN), text }));
  return { width: 2 + drawn.length * (COLUMN + BETWEEN) - BETWEEN, height: HEAD + tallest + 2, boxes, edges, heads };
}

function lines(node: GraphNode): { readonly name: readonly string[]; readonly place: string; readonly height: number } {
  const name = wrapName(node.op, LETTERS);
  const place = node.layer === "" ? node.stage : cutLeft(node.layer, LETTERS + 2);
  return { name, place, height: 2 * PADDING + LINE * (name.length + (place === "" ? 0 : 1) + 1) };
}

/** At most two lines of `most` letters, parted where a word of the name begins if one does. */
export function wrapName(name: string, most: number): readonly string[] {
  if (name.length <= most) return [name];
  const borders = [...name.matchAll(/(?<=[a-z0-9_/])(?=[A-Z])|(?<=[_/])/g)].map((match) => match.index).filter((index) => index >= most / 2 && index <= most);
  const border = borders.at(-1) ?? most;
  const rest = name.slice(border);
  return [name.slice(0, border), rest.length > most ? `${rest.slice(0, most - 1)}…` : rest];
}

/** The end of a name tells more than its beginning. */
function cutLeft(name: string, most: number): string {
  return name.length <= most ? name : `…${name.slice(1 - most)}`;
}
