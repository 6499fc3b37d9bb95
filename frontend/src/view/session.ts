/** What the page knows and shows, as signals; how it is fetched and kept fresh; and the actions of the user. */
import { batch, computed, effect, signal } from "@preact/signals";
import * as api from "../net/api";
import { hidden, readLink, watchLink, watchReload, watchTheme, writeLink } from "../net/host";
import { Poller } from "../net/polling";
import { TileStore } from "../net/tile_store";
import { type Place, kindsPresent, placeOfFinding, placeOfIncident, sharedPath } from "../model/rows";
import { type Action, START, readHash, reduce, writeHash } from "../model/selection";
import { type Window, around, clamp, follow, same, span, whole } from "../model/steps";
import type { Finding, Incident, Kind, Report, RunSummary, RunsAnswer, Tables, Theme } from "../model/types";

export interface Detail {
  readonly run: string;
  readonly version: string;
  readonly report: Report;
  readonly tables: Tables;
}

export const theme = signal<Theme>("light");
export const answer = signal<RunsAnswer | undefined>(undefined);
/** Why the server could not be asked, and when that began; undefined while it answers. */
export const lost = signal<{ readonly reason: string; readonly since: number; readonly retrySeconds: number } | undefined>(undefined);
export const selection = signal(START);
export const detail = signal<Detail | undefined>(undefined);
export const detailError = signal<string | undefined>(undefined);
export const tileError = signal<string | undefined>(undefined);
/** Counts the arrivals of tiles, for whoever paints them. */
export const arrivals = signal(0);
/** Where on the step axis the pointer or cursor is, in any chart. */
export const pointed = signal<number | undefined>(undefined);
/** The row that the heatmap should bring into view; a new object each time. */
export const reveal = signal<{ readonly row: number | undefined } | undefined>(undefined);
export const openIncident = signal(0);
/** Seconds since the epoch, moving while somebody looks. */
export const clock = signal(Date.now() / 1000);

export const run = computed<RunSummary | undefined>(() => answer.value?.runs.find((candidate) => candidate.run === selection.value.run));
export const bounds = computed<Window | undefined>(() => {
  const attempt = run.value?.attempts.find((candidate) => candidate.attempt === selection.value.attempt);
  if (detail.value && attempt) return whole(attempt.first_step, attempt.last_step);
  const steps = detail.value?.tables.steps;
  return steps && steps.count > 0 ? whole(steps.first, steps.last) : undefined;
});
export const shown = computed<Window>(() => {
  const all = bounds.value ?? { from: 0, to: 1 };
  return selection.value.window === null ? all : clamp(selection.value.window, all);
});
/** Recorders write at least every few seconds; one that was silent for long is dead or stuck, said goodbye or not. */
export const SILENT_SECONDS = 60;
export const live = computed(() => run.value !== undefined && !run.value.ended && clock.value - run.value.updated < SILENT_SECONDS);

const origin = computed(() => {
  const now = detail.value;
  const first = now?.report.incidents[0] ?? undefined;
  if (now && first) return placeOfIncident(now.tables, first);
  const finding = now?.report.findings.find((candidate) => candidate.tensor !== "");
  return now && finding ? placeOfFinding(now.tables, finding) : undefined;
});
export const kind = computed<Kind>(() => {
  const present = detail.value ? kindsPresent(detail.value.tables) : [];
  const chosen = selection.value.kind ?? origin.value?.kind ?? "gradient";
  return present.includes(chosen) ? chosen : (present[0] ?? chosen);
});
export const rows = computed(() => detail.value?.tables.kinds[kind.value] ?? []);
export const pins = computed<readonly string[]>(() => selection.value.pins ?? (origin.value ? [origin.value.row.tag] : []));

export const shared = computed(() => sharedPath(rows.value));

export const flags = computed(() => {
  const now = detail.value;
  if (!now) return [];
  return now.report.incidents.map((incident) => {
    const place = placeOfIncident(now.tables, incident);
    const { first_step: step, recovered } = incident;
    return { step, recovered, row: place?.kind === kind.value ? place.row.row : undefined };
  });
});

export const tiles = new TileStore(
  (key, signal) => api.fetchTile(key, detail.peek()?.tables.kinds[key.kind].length ?? 0, signal),
  () => batch(() => {
    arrivals.value++;
    tileError.value = undefined;
  }),
  (error) => (tileError.value = textOf(error)),
);

export function act(action: Action): void {
  selection.value = reduce(selection.value, action);
}

/** Show these steps; a window on everything is "the whole run" and grows with it. */
export function showWindow(window: Window): void {
  const all = bounds.peek();
  if (!all) return;
  const held = clamp(window, all);
  act({ do: "window", window: same(held, all) ? null : held });
}

/** Around a single step: narrow enough to see single ones. */
const CLOSE_STEPS = 64;

/** Bring a tensor at some steps into view: its kind, its row, and the steps with some company. */
export function jump(place: Place | undefined, step: number, until = step): void {
  const all = bounds.peek();
  if (!all) return;
  batch(() => {
    reveal.value = { row: place?.row.row };
    if (place) {
      act({ do: "kind", kind: place.kind });
      if (!pins.peek().includes(place.row.tag)) act({ do: "pin", tag: place.row.tag, shown: pins.peek() });
    }
    const size = Math.max(CLOSE_STEPS, 1.2 * (until - step));
    showWindow(around(Math.floor((step + until) / 2), Math.min(span(all), size), all));
    pointed.value = step + 0.5;
  });
}

export function jumpToIncident(incident: Incident): void {
  const now = detail.peek();
  if (!now) return;
  openIncident.value = now.report.incidents.indexOf(incident);
  jump(placeOfIncident(now.tables, incident), incident.first_step);
}

export function jumpToFinding(finding: Finding): void {
  const now = detail.peek();
  if (now) jump(placeOfFinding(now.tables, finding), finding.first_step, finding.last_step);
}

export function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The run that somebody who comes without a link wants to see: the newest in trouble, else the newest. */
export function firstToShow(runs: readonly RunSummary[]): string | null {
  const urgency = (candidate: RunSummary): number => (candidate.status === "incident" ? 2 : candidate.status === "warning" ? 1 : 0);
  const sorted = [...runs].sort((a, b) => urgency(b) - urgency(a) || b.updated - a.updated);
  return sorted[0]?.run ?? null;
}

const poller = new Poller({
  hidden,
  round: async (signal) => {
    const news = await api.fetchRuns(signal);
    batch(() => {
      lost.value = undefined;
      answer.value = news;
      clock.value = Date.now() / 1000;
      if (selection.value.run === null) act({ do: "all", selection: { ...selection.value, run: firstToShow(news.runs) } });
    });
    return news.loading ? 1 : news.reload_interval;
  },
  failed: (error, retrySeconds) => {
    lost.value = { reason: textOf(error), since: lost.peek()?.since ?? Date.now() / 1000, retrySeconds };
  },
});

export function retry(): void {
  void poller.now();
}

let fetching: AbortController | undefined;

/** Fetches report and tables of the selected run whenever it, or its version, is another. */
async function refreshDetail(name: string, version: string): Promise<void> {
  fetching?.abort();
  const controller = new AbortController();
  fetching = controller;
  try {
    const [report, tables] = await Promise.all([api.fetchReport(name, controller.signal), api.fetchTables(name, controller.signal)]);
    if (controller.signal.aborted) return;
    batch(() => {
      const before = detail.peek()?.run === name ? bounds.peek() : undefined;
      detail.value = { run: name, version, report, tables };
      detailError.value = undefined;
      const window = selection.peek().window;
      const after = bounds.value;
      if (window !== null && before && after && !same(before, after)) act({ do: "window", window: follow(window, before, after) });
    });
  } catch (error) {
    if (!controller.signal.aborted) detailError.value = textOf(error);
  }
}

/** Begins to fetch and to follow the host. Called once. */
export function start(): void {
  watchTheme((next) => (theme.value = next));
  const linked = readHash(readLink());
  if (linked) act({ do: "all", selection: linked });
  watchLink((hash) => {
    const next = readHash(hash);
    if (next) act({ do: "all", selection: next });
  });
  watchReload(retry);

  const wanted = computed(() => {
    const now = run.value;
    return now && now.status !== "empty" ? `${now.version}\n${now.run}` : undefined;
  });
  effect(() => {
    if (wanted.value === undefined) return;
    const now = run.peek()!;
    if (detail.peek()?.run !== now.run) batch(() => {
      detail.value = undefined;
      detailError.value = undefined;
      openIncident.value = 0;
      pointed.value = undefined;
    });
    void refreshDetail(now.run, now.version);
  });

  let timer: ReturnType<typeof setTimeout> | undefined;
  const share = (): void => writeLink((hash) => writeHash(hash, selection.peek()));
  effect(() => {
    if (selection.value.run === null) return;
    clearTimeout(timer);
    timer = setTimeout(share, 150); // zooming changes the window many times a second
  });
  setInterval(() => {
    if (!hidden()) clock.value = Date.now() / 1000;
  }, 5000);
  const woke = (): void => {
    poller.woke();
    if (!hidden() && selection.peek().run !== null) share();
  };
  window.addEventListener("resize", woke);
  document.addEventListener("visibilitychange", woke);
  void poller.now();
}
