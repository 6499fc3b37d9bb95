/** Ticks. Steps are whole numbers; a tick stands in the middle of its step's column. */
import { ticks } from "d3-array";
import { type Window, span, stepsInside } from "../model/steps";

export interface Tick {
  readonly step: number;
  readonly position: number;
}

export function stepTicks(window: Window, width: number): readonly Tick[] {
  const { first, last } = stepsInside(window);
  const wanted = Math.max(2, Math.min(10, Math.floor(width / 90)));
  const found = ticks(first, last, Math.min(wanted, Math.max(1, Math.floor(span(window)))));
  return found.filter(Number.isInteger).map((step) => ({ step, position: step + 0.5 }));
}

/** Whole decades between two powers of ten, thinned to at most `most`. */
export function decadeTicks(low: number, high: number, most: number): readonly number[] {
  const first = Math.ceil(low - 1e-9);
  const last = Math.floor(high + 1e-9);
  const count = last - first + 1;
  const every = Math.max(1, Math.ceil(count / Math.max(1, most)));
  const found: number[] = [];
  for (let decade = Math.ceil(first / every) * every; decade <= last; decade += every) found.push(decade);
  return found;
}
