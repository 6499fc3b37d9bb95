/** The loss and the pinned tensors as line charts under the heatmap, on the same steps. */
import { useSignal, useSignalEffect } from "@preact/signals";
import { bisectRight } from "d3-array";
import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import { PALETTES } from "../chart/color";
import { GAP, RAIL } from "../chart/geometry";
import { type LineData, lineOptions, plotted, worthLogarithm } from "../chart/line";
import { framed } from "../chart/surface";
import type { Series } from "../model/decode";
import { KIND_NAMES, STAT_NAMES, formatNumber, statApplies } from "../model/format";
import { BAD, stateWords } from "../model/magnitude";
import { placeOfTag } from "../model/rows";
import { type Window, span } from "../model/steps";
import { STATS, type Stat } from "../model/types";
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
      {session.pins.value.map((tag) => {
        const place = placeOfTag(now.tables, tag);
        const about = place ? `${KIND_NAMES[place.kind].toLowerCase()} · ${STAT_NAMES[stat]}${stat === "headroom" ? " (octaves)" : ""}` : "";
        if (place && !statApplies(place.kind, stat)) return <Inapplicable key={tag} tag={tag} title={place.row.name} about={`${KIND_NAMES[place.kind]} have no ${STAT_NAMES[stat].toLowerCase()}.`} />;
        return <LineChart key={tag} tag={tag} stat={stat} title={place?.row.name ?? tag} about={about} />;
      })}
    </section>
  );
}

interface ChartProps {
  readonly tag: string;
  readonly stat: Stat | "value";
  readonly title: string;
  readonly about: string;
}

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
function useSeries(tag: string, stat: Stat | "value") {
  const fetched = useSignal<Fetched | undefined>(undefined);
  const problem = useSignal("");
  useSignalEffect(() => {
    const [now, window, all, attempt] = [session.detail.value, session.shown.value, session.bounds.value, session.selection.value.attempt];
    if (!now || !all) return;
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

function LineChart({ tag, stat, title, about }: ChartProps) {
  // A chart of another statistic starts anew: its series, scale and hooks belong together.
  return <Chart key={stat} tag={tag} stat={stat} title={title} about={about} />;
}

function Chart({ tag, stat, title, about }: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | undefined>(undefined);
  const data = useRef<LineData | undefined>(undefined);
  const { fetched, problem } = useSeries(tag, stat);
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
      const look = { palette, color: palette.accent, width, height: HEIGHT, window: session.shown.peek(), axisWidth: namesWidth(width), rightPadding: RAIL + GAP };
      const listener = {
        hovered: (position: number | undefined): void => void (session.pointed.value = position),
        selected: session.showWindow,
        reset: () => session.act({ do: "window", window: null }),
      };
      chart.current = new uPlot(lineOptions(look, () => data.current, () => session.shown.peek(), listener), [[], [], []], box);
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
    if (!now) return;
    const logarithmic = worthLogarithm(now.series);
    data.current = { series: now.series, flags: session.flags.value, logarithmic };
    const { x, low, high } = plotted(now.series, logarithmic);
    chart.current?.setData([x, low, high], true);
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
  return (
    <figure class="line" aria-label={`${title} by step`}>
      <figcaption>
        {pinned && <Unpin tag={tag} title={title} />}
        <strong title={title}>{title}</strong> <span class="quiet">{about}</span>
        <span class="value">{series && valueAt(series, session.pointed.value ?? session.shown.value.to - 1e-6)}</span>
      </figcaption>
      <div ref={place} style={{ height: `${HEIGHT}px` }} />
      {series && series.step.length === 0 && <p class="quiet hollow">Not measured for this tensor in these steps.</p>}
      {problem.value !== "" && <p class="problem">{problem.value}</p>}
    </figure>
  );
}

function Unpin({ tag, title }: { readonly tag: string; readonly title: string }) {
  return (
    <button class="unpin" aria-label={`Unpin ${title}`} title="Unpin" onClick={() => session.act({ do: "pin", tag, shown: session.pins.peek() })}>
      ×
    </button>
  );
}

function Inapplicable({ tag, title, about }: { readonly tag: string; readonly title: string; readonly about: string }) {
  return (
    <figure class="line">
      <figcaption>
        <Unpin tag={tag} title={title} />
        <strong title={title}>{title}</strong> <span class="quiet">{about}</span>
      </figcaption>
    </figure>
  );
}

/** The value at a position, or the last one before it. */
function valueAt(series: Series, position: number): string {
  const count = series.step.length;
  if (count === 0) return "";
  const index = Math.max(0, bisectRight(series.step, position) - 1);
  const [low, high, state] = [series.low[index]!, series.high[index]!, series.state[index]!];
  const numbers = Number.isNaN(high) ? "" : low === high || Math.abs(high - low) < 1e-6 * Math.abs(high) ? formatNumber(high) : `${formatNumber(low)} to ${formatNumber(high)}`;
  const text = [stateWords(state & BAD), numbers].filter((part) => part !== "").join(", ");
  return `${text || "not measured"} at step ${series.step[index]!.toLocaleString("en-US")}`;
}
