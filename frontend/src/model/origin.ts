/** The origin of an incident as short texts: what made the bad value, where that is written, from what, and how it is known. */
import { formatCount, formatNumber, formatShape, fromJson, words } from "./format";
import type { Incident, Operand, Origin, Source, Trial } from "./types";

const MOST_SAMPLES = 12;

/** "train.py" of "/home/me/train.py" or "C:\me\train.py". */
export function baseOf(path: string): string {
  return path.split(/[\\/]/).at(-1) ?? path;
}

/** The folder that the file is in, "…/me/" of "/home/me/train.py": enough to tell two files of one name apart. */
export function folderOf(path: string): string {
  const parts = path.split(/[\\/]/);
  const parent = parts.at(-2);
  return parent === undefined || parent === "" ? "" : `${parts.length > 2 ? "…/" : ""}${parent}/`;
}

/** Whether a file is an installed package's rather than the user's own. */
export function isLibrary(path: string): boolean {
  return /[\\/](site|dist)-packages[\\/]/.test(path);
}

export interface Maker {
  readonly op: string;
  /** The forward op whose gradient it is; empty where it is none, or that is not known. */
  readonly gradientOf: string;
}

/** Phases in which an op only met a bad value that was there before it. */
const MET: readonly string[] = ["input", "weights"];

/** The op that made the bad value; undefined where only a layer or a step is known, or no op of this run made it. */
export function makerOf({ origin, replay }: Incident): Maker | undefined {
  if (!origin.op_type || MET.includes(origin.phase)) return undefined;
  const forward = replay?.forward_op ?? "";
  return { op: origin.op_type, gradientOf: forward === origin.op_type ? "" : forward };
}

/** "train.py:34", or empty. */
export function lineOf(source: Pick<Source, "file" | "line"> | null | undefined): string {
  if (!source || source.file === "") return "";
  return source.line > 0 ? `${baseOf(source.file)}:${source.line}` : baseOf(source.file);
}

export interface Lines {
  /** The line of the user's own program, or the library's where that is not known. */
  readonly own: Source | undefined;
  /** The line inside a library that the user's line leads to. */
  readonly library: Pick<Source, "file" | "line" | "function"> | undefined;
}

/** Where the op is written: the user's line first, whichever of the two the report has in front. */
export function linesOf(incident: Incident): Lines {
  const { origin, replay } = incident;
  const [source, other] = [origin.source ?? undefined, replay?.library ?? undefined];
  if (!source || (origin.op_type && !makerOf(incident))) return { own: undefined, library: undefined };
  if (!other || !isLibrary(source.file) || isLibrary(other.file)) return { own: source, library: other };
  const written = replay?.stack?.find(({ file, line }) => file === other.file && line === other.line);
  return { own: { ...other, code: written?.code ?? "" }, library: source };
}

/** "samples 3, 6, 9 of the batch"; empty where the samples are not known. */
export function samplesText({ samples, inputs }: Origin): string {
  if (!samples || samples.length === 0) return "";
  // An op that fails for all of them says nothing about any.
  const size = Math.max(0, ...(inputs ?? []).map(({ shape }) => shape?.[0] ?? 0));
  if (samples.length > 1 && samples.length === size && Math.max(...samples) < size) return `all ${formatCount(size)} samples of the batch`;
  const told = samples.slice(0, MOST_SAMPLES).map(formatCount).join(", ");
  return `${samples.length === 1 ? "sample" : "samples"} ${told}${samples.length > MOST_SAMPLES ? ", …" : ""} of the batch`;
}

export interface OperandRow {
  readonly name: string;
  readonly type: string;
  readonly range: string;
  /** Counts that are worth a look: those of non-finite values first. */
  readonly counts: readonly { readonly text: string; readonly bad: boolean }[];
  readonly bad: boolean;
}

export function operandRow(operand: Operand): OperandRow {
  const { nan, inf, zero, negative = 0, shape } = operand;
  const size = shape === null ? undefined : shape.reduce((product, dimension) => product * dimension, 1);
  const counted = [
    { count: nan, what: "NaN", bad: true },
    { count: inf, what: "Inf", bad: true },
    { count: zero, what: zero === 1 ? "zero" : "zeros", bad: false },
    { count: negative, what: "negative", bad: false },
  ];
  return {
    name: operand.name,
    type: [operand.dtype, formatShape(shape)].filter((part) => part !== "").join(", "),
    range: rangeText(operand, size),
    counts: counted.filter(({ count }) => count > 0).map(({ count, what, bad }) => ({ text: `${count === size && count > 1 ? "all " : ""}${formatCount(count)} ${what}`, bad })),
    bad: nan + inf > 0,
  };
}

function rangeText({ dtype, min, max, nan, inf }: Operand, size: number | undefined): string {
  if (size === 0) return "empty";
  if (size !== undefined && nan + inf >= size) return "nothing finite";
  if (!/float|int/.test(dtype)) return "no numbers";
  const [low, high] = [formatNumber(fromJson(min) ?? NaN), formatNumber(fromJson(max) ?? NaN)];
  return low === high ? low : `${low} to ${high}`;
}

/** A sentence on how the origin is known, or why it is not known better; empty where no step of the run made the value. */
export function howKnown({ origin, replay }: Incident): string {
  if (origin.phase === "weights") return "";
  if (!replay) return origin.precision === "op" ? "" : "The step was not run again op by op: known is the first tensor that the recorder saw, not the op.";
  const steps = !replay.steps || replay.steps === 1 ? "the step" : `${formatCount(replay.steps)} steps`;
  const seconds = typeof replay.seconds !== "number" ? "" : ` in ${formatNumber(Number(replay.seconds.toPrecision(2)))} s`;
  const why = (replay.why ?? replay.error ?? "").trim();
  const because = why === "" ? "." : `: ${why}`;
  switch (replay.outcome) {
    case "reproduced":
      return `Found by running ${steps} again, ${steps === "the step" ? "" : "the last one "}op by op${seconds}.`;
    case "reproduced under XLA only":
      return `Found by running ${steps} again${seconds}; only the kernels that XLA compiled made the bad value.`;
    case "refused":
      return `Run again op by op, this op refused its inputs${because}`;
    case "not reproduced":
      return `Running ${steps} again did not bring it back${because}`;
    case "not possible":
      return `The step could not be run again${because}`;
    case "failed":
      return `Running the step again failed${because}`;
    default:
      return `Running the step again: ${words(replay.outcome ?? "nothing known")}${because}`;
  }
}

export interface TrialText {
  readonly mark: "good" | "bad" | "unsure" | "untried";
  readonly text: string;
  /** What the same steps did without the remedy. */
  readonly control: string;
}

export function trialText(trial: Trial | null | undefined): TrialText {
  const steps = trial?.steps ? ` ${formatCount(trial.steps)} ${trial.steps === 1 ? "step" : "steps"}` : "";
  const control = trial?.control === "nonfinite" ? "without it they blew up again" : trial?.control === "finite" ? "but so they did without it" : "";
  switch (trial?.outcome) {
    case "finite":
      return { mark: "good", text: `tried: stayed finite${steps && ` for${steps}`}`, control };
    case "nonfinite":
      return { mark: "bad", text: `tried: blew up all the same${steps && ` within${steps}`}`, control: "" };
    case "inconclusive":
      return { mark: "unsure", text: "tried: inconclusive", control };
    default:
      return { mark: "untried", text: "not tried", control: "" };
  }
}
