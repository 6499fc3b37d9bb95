/** What the user looks at, how it changes, and how it travels in a link. */
import type { Window } from "./steps";
import { KINDS, STATS, type Kind, type Stat } from "./types";

export type RowMode = "fit" | "readable";

export interface Selection {
  readonly run: string | null;
  /** null: the newest value of every step, whichever attempt it is from. */
  readonly attempt: number | null;
  /** null: the kind that shows the first incident. */
  readonly kind: Kind | null;
  /** null: the whole run, growing with it. */
  readonly window: Window | null;
  /** null: nothing pinned by hand, so the origin of the incident is shown. */
  readonly pins: readonly string[] | null;
  readonly stat: Stat;
  readonly rows: RowMode;
}

export const START: Selection = { run: null, attempt: null, kind: null, window: null, pins: null, stat: "norm", rows: "fit" };

export type Action =
  | { readonly do: "run"; readonly run: string }
  | { readonly do: "attempt"; readonly attempt: number | null }
  | { readonly do: "kind"; readonly kind: Kind }
  | { readonly do: "window"; readonly window: Window | null }
  | { readonly do: "pin"; readonly tag: string; readonly shown: readonly string[] }
  | { readonly do: "stat"; readonly stat: Stat }
  | { readonly do: "rows"; readonly rows: RowMode }
  | { readonly do: "all"; readonly selection: Selection };

export const MAX_PINS = 12;

export function reduce(selection: Selection, action: Action): Selection {
  switch (action.do) {
    case "run":
      // Another run has other steps and tensors; how one likes to look stays.
      return action.run === selection.run ? selection : { ...selection, run: action.run, attempt: null, kind: null, window: null, pins: null };
    case "attempt":
      return { ...selection, attempt: action.attempt, window: null };
    case "kind":
      return { ...selection, kind: action.kind };
    case "window":
      return { ...selection, window: action.window };
    case "pin":
      return { ...selection, pins: toggled(action.shown, action.tag) };
    case "stat":
      return { ...selection, stat: action.stat };
    case "rows":
      return { ...selection, rows: action.rows };
    case "all":
      return action.selection;
  }
}

function toggled(pins: readonly string[], tag: string): readonly string[] {
  return pins.includes(tag) ? pins.filter((pin) => pin !== tag) : [...pins, tag].slice(-MAX_PINS);
}

const PREFIX = "p.nanwatch.";

/** `hash` (with or without "#") with our part replaced; the parts of TensorBoard and of other plugins stay as they are. */
export function writeHash(hash: string, selection: Selection): string {
  const parts = hash.replace(/^#/, "").split("&").filter((part) => part !== "" && !part.startsWith(PREFIX));
  const put = (name: string, value: string): number => parts.push(`${PREFIX}${name}=${encodeURIComponent(value)}`);
  if (selection.run !== null) put("run", selection.run);
  if (selection.attempt !== null) put("attempt", String(selection.attempt));
  if (selection.kind !== null) put("kind", selection.kind);
  if (selection.window !== null) put("steps", `${round(selection.window.from)}~${round(selection.window.to)}`);
  // Tags may hold any character: each is escaped once more, so that the comma between them is unmistakable.
  if (selection.pins !== null) put("pins", selection.pins.map(encodeURIComponent).join(","));
  if (selection.stat !== START.stat) put("stat", selection.stat);
  if (selection.rows !== START.rows) put("rows", selection.rows);
  return `#${parts.join("&")}`;
}

/** What a link says; undefined where it says nothing of ours. Whatever is malformed is left at its default. */
export function readHash(hash: string): Selection | undefined {
  const found = new Map<string, string>();
  for (const part of hash.replace(/^#/, "").split("&")) {
    const equals = part.indexOf("=");
    if (!part.startsWith(PREFIX) || equals < 0) continue;
    const value = decoded(part.slice(equals + 1));
    if (value !== undefined) found.set(part.slice(PREFIX.length, equals), value);
  }
  if (found.size === 0) return undefined;
  return {
    run: found.get("run") ?? null,
    attempt: /^\d{1,9}$/.test(found.get("attempt") ?? "") ? Number(found.get("attempt")) : null,
    kind: KINDS.find((kind) => kind === found.get("kind")) ?? null,
    window: windowOf(found.get("steps")),
    pins: pinsOf(found.get("pins")),
    stat: STATS.find((stat) => stat === found.get("stat")) ?? START.stat,
    rows: found.get("rows") === "readable" ? "readable" : START.rows,
  };
}

function windowOf(text: string | undefined): Window | null {
  const match = /^(-?[\d.]+)~(-?[\d.]+)$/.exec(text ?? "");
  if (!match) return null;
  const [from, to] = [Number(match[1]), Number(match[2])];
  return Number.isFinite(from) && Number.isFinite(to) && to > from ? { from, to } : null;
}

function pinsOf(text: string | undefined): readonly string[] | null {
  if (text === undefined) return null;
  const tags = text.split(",").map(decoded).filter((tag): tag is string => tag !== undefined && tag !== "");
  return [...new Set(tags)].slice(0, MAX_PINS);
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}
