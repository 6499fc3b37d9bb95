/**
 * Windows on the steps. A step s covers [s, s + 1) of the axis, so a run of steps 0..99 covers [0, 100);
 * `from` and `to` are positions on that axis, in steps and fractions of steps.
 */
export interface Window {
  readonly from: number;
  readonly to: number;
}

/** The narrowest window, in steps. */
export const NARROWEST = 4;

/** The whole of a run whose first and last steps are given; never empty. */
export function whole(first: number, last: number): Window {
  return { from: first, to: Math.max(last + 1, first + 1) };
}

export function span(window: Window): number {
  return window.to - window.from;
}

/** `window` moved and narrowed until it lies inside `bounds`. */
export function clamp(window: Window, bounds: Window): Window {
  const limit = span(bounds);
  const size = Math.min(limit, Math.max(Math.min(NARROWEST, limit), span(window)));
  const middle = (window.from + window.to) / 2;
  const from = Math.min(bounds.to - size, Math.max(bounds.from, size === span(window) ? window.from : middle - size / 2));
  return { from, to: from + size };
}

/** Zoomed by `factor` (below 1: closer), the axis position `at` staying where it is. */
export function zoom(window: Window, factor: number, at: number, bounds: Window): Window {
  const size = Math.min(span(bounds), Math.max(Math.min(NARROWEST, span(bounds)), span(window) * factor));
  const share = span(window) > 0 ? (at - window.from) / span(window) : 0.5;
  const from = at - share * size;
  return clamp({ from, to: from + size }, bounds);
}

export function pan(window: Window, steps: number, bounds: Window): Window {
  return clamp({ from: window.from + steps, to: window.to + steps }, bounds);
}

/** A window around one step, close enough to see single steps. */
export function around(step: number, size: number, bounds: Window): Window {
  return clamp({ from: step + 0.5 - size / 2, to: step + 0.5 + size / 2 }, bounds);
}

/** The window after the run grew: one at the right edge follows it, others stay. */
export function follow(window: Window, before: Window, after: Window): Window {
  if (window.to < before.to - 0.5) return clamp(window, after);
  return clamp({ from: window.from + after.to - before.to, to: after.to }, after);
}

export function same(a: Window, b: Window): boolean {
  return Math.abs(a.from - b.from) < 1e-9 && Math.abs(a.to - b.to) < 1e-9;
}

/** First and last whole step of which any part is inside. */
export function stepsInside(window: Window): { readonly first: number; readonly last: number } {
  const first = Math.floor(window.from + 1e-9);
  return { first, last: Math.max(first, Math.ceil(window.to - 1e-9) - 1) };
}
