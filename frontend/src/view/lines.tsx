/** The loss and the pinned tensors as line charts under the heatmap, on the same steps. */
import { useSignal, useSignalEffect } from "@preact/signals";
import { bisectRight } from "d3-array";
import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import { PALETTES } from "../chart/color";
import { GAP, RAIL } from "../chart/geometry";
import { type LineData, aligned, lineOptions, worthLogarithm } from "../chart/line";
import { framed } from "../chart/surface";
import type { Series } from "../model/decode";
import { KIND_NAMES, STAT_NAMES, formatCount, formatNumber, statApplies } from "../model/format";
import { BAD, stateWords } from "../model/magnitude";
import { counterpart, placeOfTag } from "../model/rows";
import { type Window, span } from "../model/steps";
import { type Kind, STATS, type Stat } from "../model/types";
import { fetchSeries } from "../net/api";
import { namesWidth } from "./heatmap_view";
import * as session from "./session";

export function Lines() {
  const now = session.detail.value;
  if (!now) return null;
  const { scalars, kinds } = now.tables;
  const loss = scalars.find(({ kind }) => kind === "loss");
  // What the user marked with `tap` is what they care for: the first such tensor stands beside the loss.
  const tap = kinds.activation.find(({ layer_class: type, tag }) => type === "tap" && !session.pins.value.includes(tag));
  const stat = session.selection.value.stat;
  return (
    <section class="lines" aria-label="Line charts">
      {loss && <LineChart key={loss.tag} tag={loss.tag} stat="value" title={loss.name} about="" />}
      {tap && <LineChart key={tap.tag} tag={tap.tag} stat="norm" title={tap.name} about={`tapped · ${STAT_NAMES.norm}`} />}
      <div class="toolbar">
        <h2>Pinned tensors</h2>
        <div class="tools">
          <label>
            Show{" "}
            <select value={stat} onChange={(event) => session.act({ do: "stat", stat: event.currentTarget.value as Stat })}>
              {STATS.map((name) => (
                <option key={name} value={name}>
                  {STAT_NAMES[name]}
                </option>
              ))}
            </select>
          </label>
        </div>
      </div>
      {session.pins.value.length === 0 && <p class="quiet">Click a row of the heatmap to see its tensor as a line here.</p>}
      {session.pins.value.map((tag, index) => {
        const place = placeOfTag(now.tables, tag);
        const other = place && counterpart(now.tables, place);
        const beside = other && { tag: other.row.tag, kind: other.kind };
        if (beside && session.pins.value.slice(0, index).includes(beside.tag)) return null; // its chart has both lines
        const about = place ? `${KIND_NAMES[place.kind].toLowerCase()} · ${STAT_NAMES[stat]}${stat === "headroom" ? " (octaves)" : ""}` : "";
        if (place && !statApplies(place.kind, stat)) return <Inapplicable key={tag} tag={tag} title={place.row.name} about={`${KIND_NAMES[place.kind]} have no ${STAT_NAMES[stat].toLowerCase()}.`} />;
        return <LineChart key={tag} tag={tag} stat={stat} title={place?.row.name ?? tag} about={about} beside={beside} />;
      })}
    </section>
  );
}

interface ChartProps {
  readonly tag: string;
  readonly stat: Stat | "value";
  readonly title: string;
  readonly about: string;
  /** Drawn in the same chart: the same gradient before or after clipping. */
  readonly beside?: { readonly tag: string; readonly kind: Kind } | undefined;
}

/** What the second line of a chart is, as its key and its value say. */
const BESIDE: Readonly<Partial<Record<Kind, string>>> = { gradient: "before clipping", applied: "as applied" };

const HEIGHT = 118;
const POINTS = 1200;
const PATIENCE_MS = 120;

interface Fetched {
  readonly key: string;
  readonly window: Window;
  readonly series: Series;
}

/** True where what was fetched holds the window, fine enough. */
function serves(fetched: Fetched | undefined, key: string, window: Window): boolean {
  if (!fetched || fetched.key !== key || window.from < fetched.window.from - 1 || window.to > fetched.window.to + 1) return false;
  return fetched.series.stepsPerPoint === 1 || span(window) > span(fetched.window) / 4;
}

/** Fetches the series for the window and some steps around it, again when the window leaves them or the run changed. */
function useSeries(tag: string | undefined, stat: Stat | "value") {
  const fetched = useSignal<Fetched | undefined>(undefined);
  const problem = useSignal("");
  useSignalEffect(() => {
    const [now, window, all, attempt] = [session.detail.value, session.shown.value, session.bounds.value, session.selection.value.attempt];
    if (!now || !all || tag === undefined) return;
    const key = `${now.run}\n${now.version}\n${attempt}\n${tag}\n${stat}`;
    if (serves(fetched.peek(), key, window)) return;
    const controller = new AbortController();
    const around = { from: Math.max(all.from, Math.floor(window.from - span(window) / 2)), to: Math.min(all.to, Math.ceil(window.to + span(window) / 2)) };
    const timer = setTimeout(() => {
      fetchSeries({ run: now.run, attempt, tag, stat, first: around.from, last: around.to - 1, bins: POINTS }, controller.signal).then(
        (series) => {
          fetched.value = { key, window: around, series };
          problem.value = "";
        },
        (error: unknown) => {
          if (!controller.signal.aborted) problem.value = session.textOf(error);
        },
      );
    }, fetched.peek() === undefined ? 0 : PATIENCE_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  });
  return { fetched, problem };
}

function LineChart(chart: ChartProps) {
  // A chart of another statistic starts anew: its series, scale and hooks belong together.
  return <Chart key={`${chart.stat}\n${chart.beside?.tag}`} {...chart} />;
}

function Chart({ tag, stat, title, about, beside }: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | undefined>(undefined);
  const data = useRef<LineData | undefined>(undefined);
  const { fetched, problem } = useSeries(tag, stat);
  const second = useSeries(beside?.tag, stat).fetched;
  const built = useSignal(0);
  const theme = session.theme.value;

  useEffect(() => {
    const box = place.current!;
    const palette = PALETTES[theme];
    const rebuild = framed(() => {
      const width = box.clientWidth;
      if (width < 60 || (chart.current && chart.current.width === width && chart.current.root.isConnected && box.dataset["theme"] === theme)) return;
      chart.current?.destroy();
      box.dataset["theme"] = theme;
      const look = { palette, color: palette.accent, width, height: HEIGHT, window: session.shown.peek(), axisWidth: namesWidth(width), rightPadding: RAIL + GAP, paired: beside !== undefined };
      const listener = {
        hovered: (position: number | undefined): void => void (session.pointed.value = position),
        selected: session.showWindow,
        reset: () => session.act({ do: "window", window: null }),
      };
      chart.current = new uPlot(lineOptions(look, () => data.current, () => session.shown.peek(), listener), beside ? [[], [], [], []] : [[], [], []], box);
      built.value++;
    });
    const resized = new ResizeObserver(rebuild);
    resized.observe(box);
    return () => {
      resized.disconnect();
      chart.current?.destroy();
      chart.current = undefined;
    };
  }, [theme]);

  useSignalEffect(() => {
    const now = fetched.value;
    void built.value;
    const other = second.value;
    if (!now || (beside && !other)) return;
    const logarithmic = worthLogarithm(now.series, ...(other ? [other.series] : []));
    data.current = { series: now.series, beside: other?.series, flags: session.flags.value, logarithmic };
    chart.current?.setData(aligned(data.current), true);
  });
  useSignalEffect(() => {
    const { from, to } = session.shown.value;
    void session.flags.value;
    void built.value;
    chart.current?.setScale("x", { min: from, max: to });
  });
  // In a frame of its own: uPlot takes a new scale into use only after the effects that set it.
  const pointer = useMemo(
    () =>
      framed(() => {
        const position = session.pointed.peek();
        const left = position === undefined ? -10 : (chart.current?.valToPos(position, "x") ?? -10);
        chart.current?.setCursor({ left, top: 0 }, false);
      }),
    [],
  );
  useSignalEffect(() => {
    void [session.pointed.value, session.shown.value, fetched.value, built.value];
    pointer();
  });

  const pinned = session.pins.value.includes(tag);
  const series = fetched.value?.series;
  const at = session.pointed.value ?? session.shown.value.to - 1e-6;
  const other = beside && second.value && `${BESIDE[beside.kind]} ${numberAt(second.value.series, at)}`;
  return (
    <figure class="line" aria-label={`${title} by step`}>
      <figcaption>
        {pinned && <Unpin tags={beside ? [tag, beside.tag] : [tag]} title={title} />}
        <strong title={title}>{title}</strong> <span class="quiet">{about}</span>
        {other && <span class="quiet beside">{other}</span>}
        <span class="value">{series && valueAt(series, at)}</span>
      </figcaption>
      <div ref={place} style={{ height: `${HEIGHT}px` }} />
      {series && series.step.length === 0 && <p class="quiet hollow">Not measured for this tensor in these steps.</p>}
      {problem.value !== "" && <p class="problem">{problem.value}</p>}
    </figure>
  );
}

function Unpin({ tags, title }: { readonly tags: readonly string[]; readonly title: string }) {
  const unpin = (): void => {
    for (const tag of tags) if (session.pins.peek().includes(tag)) session.act({ do: "pin", tag, shown: session.pins.peek() });
  };
  return (
    <button class="unpin" aria-label={`Unpin ${title}`} title="Unpin" onClick={unpin}>
      ×
    </button>
  );
}

function Inapplicable({ tag, title, about }: { readonly tag: string; readonly title: string; readonly about: string }) {
  return (
    <figure class="line">
      <figcaption>
        <Unpin tags={[tag]} title={title} />
        <strong title={title}>{title}</strong> <span class="quiet">{about}</span>
      </figcaption>
    </figure>
  );
}

/** The value at a position, or the last one before it, and its step. */
function valueAt(series: Series, position: number): string {
  return series.step.length === 0 ? "" : `${numberAt(series, position)} at step ${formatCount(series.step[indexAt(series, position)]!)}`;
}

function indexAt(series: Series, position: number): number {
  return Math.max(0, bisectRight(series.step, position) - 1);
}

function numberAt(series: Series, position: number): string {
  if (series.step.length === 0) return "not measured";
  const index = indexAt(series, position);
  const [low, high, state] = [series.low[index]!, series.high[index]!, series.state[index]!];
  const numbers = Number.isNaN(high) ? "" : low === high || Math.abs(high - low) < 1e-6 * Math.abs(high) ? formatNumber(high) : `${formatNumber(low)} to ${formatNumber(high)}`;
  const text = [stateWords(state & BAD), numbers].filter((part) => part !== "").join(", ");
  return text || "not measured";
}
