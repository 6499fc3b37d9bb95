/** What the routes answer in JSON (http_api.md). All names come from logs: untrusted text, only ever shown as text. */

export type Status = "healthy" | "warning" | "incident" | "mended" | "empty";

export const KINDS = ["weight", "gradient", "applied", "activation", "update", "input"] as const;
export type Kind = (typeof KINDS)[number];

export const STATS = ["norm", "max_abs", "mean", "zero_share", "subnormal_share", "update_ratio", "headroom"] as const;
export type Stat = (typeof STATS)[number];

/** Strict JSON holds a non-finite number as one of these words. */
export type JsonNumber = number | "NaN" | "Infinity" | "-Infinity";

export interface RunsAnswer {
  readonly runs: readonly RunSummary[];
  /** Seconds between polls; 0: never. */
  readonly reload_interval: number;
  readonly loading: boolean;
  readonly logdir: string;
  readonly damage: readonly string[];
}

export interface Attempt {
  readonly attempt: number;
  readonly first_step: number;
  readonly last_step: number;
  readonly wall_time: number;
}

export interface RunSummary {
  readonly run: string;
  readonly status: Status;
  readonly headline: string;
  readonly first_step: number;
  readonly last_step: number;
  readonly steps: number;
  readonly last_finite_step: number | null;
  readonly incidents: number;
  readonly findings: number;
  readonly tensors: number;
  readonly attempts: readonly Attempt[];
  readonly started: number;
  readonly updated: number;
  readonly ended: boolean;
  readonly version: string;
}

export interface Source {
  readonly file: string;
  readonly line: number;
  readonly function: string;
  readonly code: string;
}

export interface Counts {
  readonly nan: number;
  readonly pos_inf: number;
  readonly neg_inf: number;
  readonly size: number;
}

export interface Operand {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[] | null;
  readonly min: JsonNumber;
  readonly max: JsonNumber;
  readonly nan: number;
  readonly inf: number;
  readonly zero: number;
  readonly negative?: number;
}

/** Names that are not known are null. */
export interface Origin {
  readonly phase: string;
  readonly layer: string | null;
  readonly tensor: string | null;
  /** Which tensor of that name: a weight and its gradient share theirs. */
  readonly kind?: string | null;
  readonly op_type?: string | null;
  readonly op_name?: string | null;
  readonly source?: Source | null;
  readonly replica?: number | null;
  readonly samples?: readonly number[] | null;
  readonly precision?: string | null;
  readonly inputs?: readonly Operand[] | null;
  readonly output?: Counts | null;
}

export interface SpreadStep {
  readonly order: number;
  readonly phase: string;
  readonly tensor: string;
  readonly step?: number;
  readonly kind?: string;
  readonly layer?: string;
}

export interface Cause {
  readonly name: string;
  readonly confidence?: number;
  readonly evidence?: readonly string[];
}

/** What became of the failing steps when they ran again with the remedy, and (`control`) without it. */
export interface Trial {
  readonly outcome: string;
  readonly steps?: number;
  readonly control?: string;
  readonly note?: string;
}

export interface Remedy {
  readonly name: string;
  /** What it is called where people read. */
  readonly title?: string;
  readonly why?: string;
  readonly snippet?: string;
  readonly trial?: Trial | null;
}

/** An op beside the origin, or the origin itself. `state` holds "nan" and "inf", as far as its outputs did. */
export interface GraphOp {
  readonly role: string;
  readonly op_type: string;
  readonly layer?: string | null;
  readonly stage?: string;
  readonly state?: readonly string[];
}

/** How the recorder ran the incident again, and what it saw. `outcome` is "reproduced" where that showed the origin. */
export interface Replay {
  readonly outcome: string | null;
  readonly why?: string | null;
  readonly error?: string | null;
  readonly steps?: number | null;
  readonly seconds?: number | null;
  readonly graph?: readonly GraphOp[];
  readonly forward_op?: string | null;
  readonly library?: { readonly file: string; readonly line: number; readonly function: string } | null;
  /** The lines of the program that led there, the innermost first. */
  readonly stack?: readonly Source[];
}

export interface Incident {
  readonly first_step: number;
  readonly last_step: number | null;
  readonly recovered: boolean;
  readonly detected_step: number;
  readonly origin: Origin;
  readonly spread?: readonly SpreadStep[];
  readonly cause?: Cause | null;
  readonly other_causes?: readonly Cause[];
  readonly remedies?: readonly Remedy[];
  readonly replay?: Replay | null;
  readonly capsule?: string | null;
  /** A sentence on the slot of an optimizer that was lost before the weights; empty where none was. */
  readonly lost?: string;
}

export interface Finding {
  readonly rule: string;
  readonly severity: string;
  readonly tensor: string;
  readonly first_step: number;
  readonly last_step: number;
  readonly evidence: readonly string[];
  readonly remedies?: readonly Remedy[];
  /** Which tensor of that name: a weight and its gradient share theirs. Empty or absent where not known. */
  readonly kind?: string;
}

export interface Note {
  readonly step: number;
  readonly kind: string;
  readonly text: string;
}

export interface Report {
  readonly run: string;
  readonly status: Status;
  readonly steps: number;
  readonly last_finite_step: number | null;
  readonly headline: string;
  readonly paragraphs: readonly string[];
  readonly incidents: readonly Incident[];
  readonly findings: readonly Finding[];
  readonly notes: readonly Note[];
  readonly damage: readonly string[];
  readonly about?: { readonly entry_point?: string; readonly every?: number; readonly host?: string; readonly versions?: Readonly<Record<string, string>> };
}

export interface TensorRow {
  readonly row: number;
  readonly tag: string;
  readonly name: string;
  readonly layer: string;
  readonly layer_class: string;
  readonly dtype: string;
  readonly shape: readonly number[] | null;
  readonly order: number;
  readonly trainable: boolean;
}

export interface ScalarTag {
  readonly tag: string;
  readonly kind: string;
  readonly name: string;
}

export interface Tables {
  readonly version: string;
  readonly steps: { readonly first: number; readonly last: number; readonly count: number };
  readonly kinds: Readonly<Record<Kind, readonly TensorRow[]>>;
  readonly scalars: readonly ScalarTag[];
}

export interface Cell {
  readonly tag: string;
  readonly step: number;
  readonly measured_step: number | null;
  readonly wall_time: number | null;
  readonly iteration: number | null;
  readonly norm?: JsonNumber | null;
  readonly value?: JsonNumber | null;
  readonly state: readonly string[];
  readonly full: {
    readonly step: number;
    readonly max_abs: JsonNumber | null;
    readonly mean: JsonNumber | null;
    readonly zero_share: JsonNumber | null;
    readonly subnormal_share: JsonNumber | null;
    readonly headroom_octaves: JsonNumber | null;
    readonly update_ratio: JsonNumber | null;
  } | null;
  readonly counts: (Counts & { readonly step: number }) | null;
}

export type Theme = "light" | "dark";
