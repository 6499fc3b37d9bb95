/** Numbers, steps and times as text. */
import type { Counts, JsonNumber, Kind, Stat } from "./types";

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export function formatCount(value: number): string {
  return WHOLE.format(value);
}

/** Four significant digits; powers of ten beyond 1e-3 and 1e5. */
export function formatNumber(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "+Inf" : "−Inf";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) {
    const [digits = "", power = ""] = value.toExponential(2).split("e");
    return `${digits.replace(/\.?0+$/, "").replace("-", "−")}e${power.replace("+", "").replace("-", "−")}`;
  }
  return String(Number(value.toPrecision(4))).replace("-", "−");
}

/** A number as strict JSON carries it; undefined where it is null or missing. */
export function fromJson(value: JsonNumber | null | undefined): number | undefined {
  if (value === null || value === undefined) return undefined;
  return typeof value === "number" ? value : Number(value);
}

/** A power of ten as a tick label: 1, 10, 100, 10³, 10⁻⁵. */
export function formatDecade(decade: number): string {
  if (decade >= 0 && decade <= 2) return String(10 ** decade);
  if (decade === -1) return "0.1";
  return `10${[...String(decade)].map((digit) => (digit === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(digit)])).join("")}`;
}

export function formatShare(value: number): string {
  const percent = value * 100;
  if (percent > 0 && percent < 0.1) return "<0.1 %";
  return `${percent.toFixed(percent === 0 || percent === 100 ? 0 : 1)} %`;
}

export function formatSteps(first: number, last: number): string {
  return first === last ? `step ${formatCount(first)}` : `steps ${formatCount(first)}–${formatCount(last)}`;
}

export function formatShape(shape: readonly number[] | null): string {
  if (shape === null) return "shape unknown";
  if (shape.length === 0) return "scalar";
  return shape.map((size) => (size < 0 ? "?" : String(size))).join(" × ");
}

/** "128 NaN, 3 +Inf of 4,096 values"; empty where nothing was counted. */
export function formatCounts(counts: Counts | null | undefined): string {
  if (!counts) return "";
  const parts = [
    counts.nan > 0 ? `${formatCount(counts.nan)} NaN` : "",
    counts.pos_inf > 0 ? `${formatCount(counts.pos_inf)} +Inf` : "",
    counts.neg_inf > 0 ? `${formatCount(counts.neg_inf)} −Inf` : "",
  ].filter((part) => part !== "");
  if (parts.length === 0) return "";
  return parts.join(", ") + (counts.size > 0 ? ` of ${formatCount(counts.size)}` : "");
}

export function formatAgo(seconds: number): string {
  if (seconds < 5) return "just now";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129_600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86_400)} days ago`;
}

/** A name from the report ("exp_overflow") as words. */
export function words(name: string): string {
  return name.replaceAll("_", " ");
}

export const KIND_NAMES: Readonly<Record<Kind, string>> = {
  weight: "Weights",
  gradient: "Gradients",
  applied: "Applied gradients",
  activation: "Activations",
  update: "Updates",
  input: "Inputs",
};

/** False where the statistic means nothing for the kind: only what an optimizer changes has an update. */
export function statApplies(kind: Kind, stat: Stat): boolean {
  return stat !== "update_ratio" || kind === "weight" || kind === "update";
}

export const STAT_NAMES: Readonly<Record<Stat, string>> = {
  norm: "L2 norm",
  max_abs: "Max |x|",
  mean: "Mean",
  zero_share: "Share of zeros",
  subnormal_share: "Share of subnormals",
  update_ratio: "Update ratio",
  headroom: "Headroom",
};
