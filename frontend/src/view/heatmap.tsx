/** The heatmap with its switches, legend and readout. */
import { useSignalEffect } from "@preact/signals";
import type { TargetedKeyboardEvent } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Decades } from "../chart/color";
import { KIND_NAMES, formatCount, formatSteps } from "../model/format";
import { stepsInside } from "../model/steps";
import { kindsPresent, placeOfIncident } from "../model/rows";
import type { Kind } from "../model/types";
import { listen, zoomBy } from "./gestures";
import { type Elsewhere, HeatmapView, type Spot } from "./heatmap_view";
import { Legend } from "./legend";
import { Tooltip, sentence } from "./readout";
import * as session from "./session";

interface Hover {
  readonly spot: Spot;
  readonly x: number;
  readonly y: number;
}

export function Heatmap() {
  const frame = useRef<HTMLDivElement>(null);
  const base = useRef<HTMLCanvasElement>(null);
  const overlay = useRef<HTMLCanvasElement>(null);
  const view = useRef<HeatmapView | undefined>(undefined);
  const [hover, setHover] = useState<Hover | undefined>(undefined);
  const [spoken, setSpoken] = useState("");
  const [decades, setDecades] = useState<Decades>({ low: -3, high: 1 });

  const [away, setAway] = useState<Elsewhere | undefined>(undefined);

  useEffect(() => {
    const made = new HeatmapView(frame.current!, base.current!, overlay.current!, setDecades, (next) => setAway((old) => (sameAway(old, next) ? old : next)));
    view.current = made;
    const unlisten = listen(overlay.current!, made, {
      hovered: (spot, x, y) => setHover(spot && { spot, x, y }),
      moved: (spot) => {
        setHover(undefined);
        setSpoken(spot ? sentence(spot) : "");
      },
    });
    const resized = new ResizeObserver(made.repaint);
    resized.observe(frame.current!);
    window.addEventListener("resize", made.repaint);
    made.repaint();
    return () => {
      unlisten();
      resized.disconnect();
      window.removeEventListener("resize", made.repaint);
    };
  }, []);

  useSignalEffect(() => {
    // Everything the picture depends on; reading it here is what subscribes to it.
    void [session.detail.value, session.shown.value, session.kind.value, session.selection.value.rows, session.selection.value.attempt, session.pins.value, session.theme.value, session.arrivals.value, session.openIncident.value];
    view.current?.repaint();
  });
  useSignalEffect(() => {
    void session.pointed.value;
    view.current?.paintOverlay();
  });
  useSignalEffect(() => {
    const wish = session.reveal.value;
    if (!wish) return;
    if (wish.row !== undefined) view.current?.reveal(wish.row);
    frame.current?.scrollIntoView({ block: "nearest", behavior: "smooth" });
  });

  const rows = session.rows.value;
  return (
    <section class="heatmap" aria-label="Norms by layer and step">
      <Switches />
      <div class="figure" ref={frame}>
        <canvas ref={base} aria-hidden="true" />
        <canvas
          ref={overlay}
          class="overlay"
          tabIndex={0}
          role="application"
          aria-roledescription="heatmap"
          aria-label={`${KIND_NAMES[session.kind.value]}: ${rows.length} tensors by steps. Arrow keys move the cursor, plus and minus zoom, Home shows the whole run, Enter pins a tensor.`}
        />
        {hover && <Tooltip spot={hover.spot} x={hover.x} y={hover.y} width={frame.current?.clientWidth ?? 0} height={frame.current?.clientHeight ?? 0} />}
        {rows.length === 0 && <p class="quiet hollow">No {KIND_NAMES[session.kind.value].toLowerCase()} were recorded in this run.</p>}
      </div>
      <p class="cursor-line" aria-live="polite">
        {spoken}
      </p>
      {away && <Away away={away} />}
      <Legend decades={decades} />
      {session.tileError.value !== undefined && <p class="problem">Part of the heatmap could not be loaded: {session.tileError.value}</p>}
    </section>
  );
}

function sameAway(a: Elsewhere | undefined, b: Elsewhere | undefined): boolean {
  return a === b || (a !== undefined && b !== undefined && a.incident === b.incident && a.first?.row === b.first?.row && a.first?.from === b.first?.from);
}

/** Says where the first bad value is when no cell of this view holds it, and where to look instead. */
function Away({ away: { incident: index, first } }: { readonly away: Elsewhere }) {
  const now = session.detail.value;
  const incident = now?.report.incidents[index];
  if (!now || !incident) return null;
  const { origin, first_step: step } = incident;
  const kind = session.kind.value;
  const place = placeOfIncident(now.tables, incident);
  const other = place && place.kind !== kind ? place : undefined;
  return (
    <p class="quiet away">
      The first bad value, at step {formatCount(step)} in {origin.tensor || origin.layer || "an unknown tensor"} ({origin.phase}), is no cell of this view.
      {other && (
        <>
          {" "}
          <button class="link" onClick={() => session.jump(other, step)}>
            See it in {KIND_NAMES[other.kind].toLowerCase()}: {other.row.name}
          </button>
          .
        </>
      )}
      {first && (
        <>
          {" The first bad cell here: "}
          <button class="link" onClick={() => session.jump({ kind, row: first.row }, first.from, first.to - 1)}>
            {first.row.name}, {formatSteps(first.from, first.to - 1)}
          </button>
        </>
      )}
    </p>
  );
}

/** Arrow keys in the switch of kinds, as in any group of radio buttons. */
function turn(event: TargetedKeyboardEvent<HTMLButtonElement>, kinds: readonly Kind[]): void {
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (by === undefined) return;
  event.preventDefault();
  const next = (kinds.indexOf(session.kind.peek()) + by + kinds.length) % kinds.length;
  session.act({ do: "kind", kind: kinds[next]! });
  const buttons = event.currentTarget.parentElement?.children;
  (buttons?.[next] as HTMLElement | undefined)?.focus();
}

function toggleRows(readable: boolean): void {
  session.act({ do: "rows", rows: readable ? "fit" : "readable" });
  const pinned = session.rows.peek().find((row) => session.pins.peek().includes(row.tag));
  if (pinned && !readable) session.reveal.value = { row: pinned.row };
}

function Switches() {
  const now = session.detail.value;
  const kinds = now ? kindsPresent(now.tables) : [];
  const { first, last } = stepsInside(session.shown.value);
  const readable = session.selection.value.rows === "readable";
  return (
    <div class="toolbar">
      <div class="segments" role="radiogroup" aria-label="What the heatmap shows">
        {kinds.map((kind) => (
          <button
            key={kind}
            role="radio"
            aria-checked={kind === session.kind.value}
            tabIndex={kind === session.kind.value ? 0 : -1}
            onClick={() => session.act({ do: "kind", kind })}
            onKeyDown={(event) => turn(event, kinds)}
          >
            {KIND_NAMES[kind]}
          </button>
        ))}
      </div>
      <span class="range">{formatSteps(first, last)}</span>
      <div class="tools">
        <button
          aria-pressed={readable}
          title="Rows tall enough to read, or all rows at once"
          onClick={() => toggleRows(readable)}
        >
          {readable ? "Fit rows" : "Tall rows"}
        </button>
        <button aria-label="Zoom out" title="Zoom out (−)" onClick={() => zoomBy(2)}>
          −
        </button>
        <button aria-label="Zoom in" title="Zoom in (+)" onClick={() => zoomBy(0.5)}>
          +
        </button>
        <button title="Show the whole run (Home, or double click)" disabled={session.selection.value.window === null} onClick={() => session.act({ do: "window", window: null })}>
          Whole run
        </button>
      </div>
    </div>
  );
}
