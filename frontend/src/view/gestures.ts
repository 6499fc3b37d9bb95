/** Wheel, pointer and keys on the heatmap. */
import { areaAt, positionAt, yOf } from "../chart/geometry";
import { same, span, zoom, pan } from "../model/steps";
import type { HeatmapView, Spot } from "./heatmap_view";
import * as session from "./session";

export interface Listener {
  /** What the pointer is over, with where in the canvas; undefined when it left. */
  readonly hovered: (spot: Spot | undefined, x: number, y: number) => void;
  /** The keys moved the cursor: say it aloud. */
  readonly moved: (spot: Spot | undefined) => void;
}

const CLICK_PIXELS = 4;

export function zoomBy(factor: number, at?: number): void {
  const [shown, bounds] = [session.shown.peek(), session.bounds.peek()];
  if (bounds) session.showWindow(zoom(shown, factor, at ?? (shown.from + shown.to) / 2, bounds));
}

export function listen(canvas: HTMLCanvasElement, view: HeatmapView, listener: Listener): () => void {
  const stop = new AbortController();
  const on = <K extends keyof HTMLElementEventMap>(name: K, handle: (event: HTMLElementEventMap[K]) => void): void =>
    canvas.addEventListener(name, handle, { signal: stop.signal, passive: false });
  on("wheel", (event) => wheel(event, view));
  on("dblclick", (event) => {
    event.preventDefault();
    session.act({ do: "window", window: null });
  });
  listenPointer(on, canvas, view, listener);
  on("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (!press(event.key, view, listener)) return;
    event.preventDefault();
    event.stopPropagation();
  });
  on("blur", () => {
    view.pointAt(undefined);
    listener.hovered(undefined, 0, 0);
  });
  return () => stop.abort();
}

function wheel(event: WheelEvent, view: HeatmapView): void {
  const { geometry } = view;
  const bounds = session.bounds.peek();
  if (!geometry || !bounds) return;
  const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 200 : 1;
  const area = areaAt(geometry, event.offsetX, event.offsetY);
  if (area === "names" || area === "rail") {
    if (view.scrollBy(event.deltaY * unit)) event.preventDefault();
    return;
  }
  if (area === "none") return;
  const shown = session.shown.peek();
  const sideways = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    event.preventDefault();
    session.showWindow(pan(shown, ((sideways * unit) / geometry.plot.width) * span(shown), bounds));
    return;
  }
  // Zoomed out all the way, the wheel is the page's again.
  if (event.deltaY > 0 && same(shown, bounds)) return;
  event.preventDefault();
  zoomBy(2 ** (event.deltaY * unit * 0.003), positionAt(geometry, event.offsetX));
}

type On = <K extends keyof HTMLElementEventMap>(name: K, handle: (event: HTMLElementEventMap[K]) => void) => void;

function listenPointer(on: On, canvas: HTMLCanvasElement, view: HeatmapView, listener: Listener): void {
  let drag: { readonly x: number; readonly y: number; readonly area: string; lastX: number; lastY: number; moved: boolean } | undefined;
  on("pointerdown", (event) => {
    if (event.button !== 0 || !view.geometry) return;
    const area = areaAt(view.geometry, event.offsetX, event.offsetY);
    drag = { x: event.offsetX, y: event.offsetY, area, lastX: event.offsetX, lastY: event.offsetY, moved: false };
    canvas.setPointerCapture(event.pointerId);
    if (area === "rail") railTo(view, event.offsetY);
  });
  on("pointermove", (event) => {
    const bounds = session.bounds.peek();
    if (!view.geometry || !bounds) return;
    if (!drag) {
      hover(event, view, listener);
      return;
    }
    drag.moved ||= Math.hypot(event.offsetX - drag.x, event.offsetY - drag.y) > CLICK_PIXELS;
    if (drag.area === "rail") railTo(view, event.offsetY);
    else if (drag.moved) {
      const shown = session.shown.peek();
      if (drag.area === "plot" || drag.area === "flags") session.showWindow(pan(shown, ((drag.lastX - event.offsetX) / view.geometry.plot.width) * span(shown), bounds));
      view.scrollBy(drag.lastY - event.offsetY);
      canvas.style.cursor = "grabbing";
      listener.hovered(undefined, 0, 0);
      [drag.lastX, drag.lastY] = [event.offsetX, event.offsetY];
    }
  });
  on("pointerup", (event) => {
    const ended = drag;
    drag = undefined;
    canvas.style.cursor = "";
    if (ended && !ended.moved) click(ended.area, event.offsetX, event.offsetY, view);
  });
  on("pointercancel", () => (drag = undefined));
  on("pointerleave", () => {
    view.pointAt(undefined);
    session.pointed.value = undefined;
    listener.hovered(undefined, 0, 0);
  });
}

function railTo(view: HeatmapView, y: number): void {
  if (view.geometry) view.scrollToShare((y - view.geometry.plot.y) / view.geometry.plot.height);
}

function hover(event: PointerEvent, view: HeatmapView, listener: Listener): void {
  const area = areaAt(view.geometry!, event.offsetX, event.offsetY);
  if (area === "plot") {
    const spot = view.spotAt(event.offsetX, event.offsetY);
    view.pointAt(spot);
    session.pointed.value = spot?.position;
    listener.hovered(spot, event.offsetX, event.offsetY);
    return;
  }
  view.pointAt(undefined);
  session.pointed.value = undefined;
  const row = area === "names" ? view.spotAt(0, event.offsetY) : undefined;
  listener.hovered(row && { ...row, bin: undefined }, event.offsetX, event.offsetY);
}

function click(area: string, x: number, y: number, view: HeatmapView): void {
  if (area === "plot" || area === "names") {
    const spot = view.spotAt(x, y);
    if (spot) session.act({ do: "pin", tag: spot.tensor.tag, shown: session.pins.peek() });
  }
  if (area === "flags" && view.geometry) {
    const position = positionAt(view.geometry, x);
    const incidents = session.detail.peek()?.report.incidents ?? [];
    const distance = (step: number): number => Math.abs(step - position);
    const nearest = [...incidents].sort((a, b) => distance(a.first_step) - distance(b.first_step))[0];
    if (nearest && (distance(nearest.first_step) / span(session.shown.peek())) * view.geometry.plot.width < 40) session.jumpToIncident(nearest);
  }
}

/** True where the key means something here. */
function press(key: string, view: HeatmapView, listener: Listener): boolean {
  const { geometry, cursor } = view;
  const shown = session.shown.peek();
  if (!geometry) return false;
  const middle = cursor ? (cursor.from + cursor.to) / 2 : undefined;
  switch (key) {
    case "+":
    case "=":
      zoomBy(0.5, middle);
      return true;
    case "-":
      zoomBy(2, middle);
      return true;
    case "Home":
    case "0":
      session.act({ do: "window", window: null });
      return true;
    case "Escape":
      view.pointAt(undefined);
      listener.moved(undefined);
      return true;
    case "Enter":
    case " ": {
      const tensor = cursor?.row === undefined ? undefined : session.rows.peek()[cursor.row];
      if (tensor) session.act({ do: "pin", tag: tensor.tag, shown: session.pins.peek() });
      return tensor !== undefined;
    }
    case "ArrowLeft":
    case "ArrowRight":
    case "ArrowUp":
    case "ArrowDown":
      break;
    default:
      return false;
  }
  const start = { row: Math.max(0, Math.floor((geometry.scroll + geometry.plot.height / 2) / geometry.rowHeight)), position: (shown.from + shown.to) / 2 };
  const width = cursor ? cursor.to - cursor.from : 1;
  const [across, down] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key] ?? [0, 0];
  const bounds = session.bounds.peek()!;
  const position = cursor ? Math.min(bounds.to - 0.5, Math.max(bounds.from, (middle ?? 0) + across! * width)) : start.position;
  const row = Math.min(geometry.rows - 1, Math.max(0, (cursor?.row ?? start.row) + (cursor ? down! : 0)));
  view.follow(position);
  if (yOf(geometry, row) < geometry.plot.y || yOf(geometry, row + 1) > geometry.plot.y + geometry.plot.height) view.reveal(row);
  const spot = view.spot(row, position);
  view.pointAt(spot);
  session.pointed.value = position;
  listener.moved(spot);
  return true;
}
