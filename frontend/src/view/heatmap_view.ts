/** The heatmap's two canvases: reads what is to be shown, asks for the tiles, paints, and answers what is where. */
import { type Colors, type Palette, PALETTES, type Decades, colorTables } from "../chart/color";
import { decadesIn } from "../chart/domain";
import { type Geometry, layOut, positionAt, rowAt, scrollTo, visibleRows } from "../chart/geometry";
import { drawHeatmap } from "../chart/heatmap";
import { firstFrom, isBad, marksOf } from "../chart/marks";
import { type Cursor, drawOverlay } from "../chart/overlay";
import type { Scene } from "../chart/scene";
import { type Bin, type Lookup, type Source, readBin, sourcesOf } from "../chart/sources";
import { framed, prepare } from "../chart/surface";
import { around, clamp } from "../model/steps";
import type { TensorRow } from "../model/types";
import { blocksOf, levelFor, overviewLevel, wanted } from "../model/tiles";
import * as session from "./session";

export interface Spot {
  readonly row: number;
  readonly tensor: TensorRow;
  readonly bin: Bin | undefined;
  readonly position: number;
}

/** The open incident began outside this view. `first` is the first bad cell here, if there is any. */
export interface Elsewhere {
  readonly incident: number;
  readonly first: { readonly row: TensorRow; readonly from: number; readonly to: number } | undefined;
}

const MANY_ROWS = 300;

export class HeatmapView {
  geometry: Geometry | undefined;
  cursor: Cursor | undefined;
  private scroll = 0;
  private blocks: ReadonlyMap<number, readonly Source[]> = new Map();
  private scale: { readonly key: string; readonly palette: Palette; readonly decades: Decades; readonly colors: Colors } | undefined;
  readonly repaint = framed(() => this.paint());

  constructor(
    private readonly frame: HTMLElement,
    private readonly base: HTMLCanvasElement,
    private readonly overlay: HTMLCanvasElement,
    /** Told when the ramp spans other magnitudes than before. */
    private readonly scaled: (decades: Decades) => void,
    /** Told where the open incident first shows when its first bad value is no cell of this view; undefined where it is one. */
    private readonly elsewhere: (away: Elsewhere | undefined) => void,
  ) {}

  paint(): void {
    const [now, bounds] = [session.detail.peek(), session.bounds.peek()];
    const width = this.frame.clientWidth;
    if (!now || !bounds || width < 60) return;
    const rows = session.rows.peek();
    const kind = session.kind.peek();
    const shown = session.shown.peek();
    const palette = PALETTES[session.theme.peek()];
    const tallest = Math.min(620, Math.max(220, window.innerHeight * 0.56));
    const names = namesWidth(width);
    this.geometry = layOut({ width, tallest, names }, rows.length, session.selection.peek().rows, this.scroll, shown);
    this.scroll = this.geometry.scroll;

    const level = levelFor(shown, this.geometry.plot.width, rows.length > MANY_ROWS ? 2 : 1);
    const top = Math.max(level, overviewLevel(bounds));
    const of = { run: now.run, attempt: session.selection.peek().attempt, kind };
    session.tiles.want(wanted(of, shown, bounds, level, rows.length, visibleRows(this.geometry)), now.version);
    const lookup: Lookup = (l, tile, block) => session.tiles.get({ ...of, level: l, tile, block });
    const all = rows.length === 0 ? [] : blocksOf(0, rows.length - 1);
    const overview = new Map(all.map((block) => [block, sourcesOf(lookup, bounds, overviewLevel(bounds), overviewLevel(bounds), block)]));
    this.blocks = new Map(all.map((block) => [block, sourcesOf(lookup, shown, level, top, block)]));
    const colors = this.colorsFor(`${now.run}/${kind}`, [...this.blocks.values()].flat(), palette);
    const pinned = new Set(session.pins.peek().map((tag) => rows.findIndex((row) => row.tag === tag)).filter((row) => row >= 0));
    const context = prepare(this.base, this.geometry.width, this.geometry.height);
    if (!context) return;
    const scene: Scene = { geometry: this.geometry, palette, colors, hold: now.report.about?.every ?? 10, rows, blocks: this.blocks, marks: marksOf(this.blocks), everywhere: marksOf(overview), flags: session.flags.peek(), shared: session.shared.peek(), pinned };
    drawHeatmap(context, scene);
    if (!session.tiles.waiting) this.elsewhere(this.outside(scene));
    this.base.dataset["ready"] = String(!session.tiles.waiting);
    this.paintOverlay();
  }

  private outside({ flags, marks, everywhere, rows }: Scene): Elsewhere | undefined {
    const incident = session.openIncident.peek();
    const flag = flags[incident];
    const shown = session.shown.peek();
    if (!flag || flag.step + 1 <= shown.from || flag.step >= shown.to) return undefined;
    if (flag.row !== undefined && isBad(marks, flag.row, flag.step)) return undefined;
    const mark = firstFrom(marks, flag.step) ?? firstFrom(everywhere, flag.step);
    const row = mark && rows[mark.row];
    return { incident, first: row && { row, from: mark.from, to: mark.from + mark.bin } };
  }

  paintOverlay(): void {
    if (!this.geometry) return;
    const context = prepare(this.overlay, this.geometry.width, this.geometry.height);
    const position = session.pointed.peek();
    const line = position === undefined ? undefined : { row: undefined, from: position, to: position };
    if (context) drawOverlay(context, this.geometry, PALETTES[session.theme.peek()], this.cursor ?? line);
  }

  /** The ramp spans what is in view, so that a closer look shows finer differences; it waits while tiles are missing. */
  private colorsFor(key: string, sources: readonly Source[], palette: Palette): Colors {
    const old = this.scale;
    const steady = old?.key === key && session.tiles.waiting;
    const decades = steady ? old.decades : decadesIn(sources);
    if (old?.key === key && old.palette === palette && old.decades.low === decades.low && old.decades.high === decades.high) return old.colors;
    this.scale = { key, palette, decades, colors: colorTables(palette, decades) };
    this.scaled(decades);
    return this.scale.colors;
  }

  spotAt(x: number, y: number): Spot | undefined {
    if (!this.geometry) return undefined;
    const row = rowAt(this.geometry, y);
    return row === undefined ? undefined : this.spot(row, positionAt(this.geometry, x));
  }

  spot(row: number, position: number): Spot | undefined {
    const tensor = session.rows.peek()[row];
    return tensor && { row, tensor, position, bin: readBin(this.blocks, row, position) };
  }

  pointAt(spot: Spot | undefined): void {
    this.cursor = spot && { row: spot.row, from: spot.bin?.first ?? Math.floor(spot.position), to: (spot.bin?.last ?? Math.floor(spot.position)) + 1 };
    this.paintOverlay();
  }

  scrollBy(pixels: number): boolean {
    const before = this.scroll;
    this.scroll = Math.max(0, Math.min((this.geometry?.content ?? 0) - (this.geometry?.plot.height ?? 0), before + pixels));
    if (this.scroll !== before) this.repaint();
    return this.scroll !== before;
  }

  /** Scrolls the rows so that the one at this share of all is in the middle. */
  scrollToShare(share: number): void {
    if (!this.geometry) return;
    this.scrollBy(share * this.geometry.content - this.geometry.plot.height / 2 - this.scroll);
  }

  reveal(row: number): void {
    this.paint(); // the row may be of a kind that was not laid out yet
    if (!this.geometry) return;
    this.scroll = scrollTo(this.geometry, row);
    this.repaint();
  }

  /** Keeps the cursor's column in the window when keys move it out. */
  follow(position: number): void {
    const [shown, bounds] = [session.shown.peek(), session.bounds.peek()];
    if (!bounds || (position >= shown.from && position < shown.to)) return;
    session.showWindow(clamp(around(Math.floor(position), shown.to - shown.from, bounds), bounds));
  }
}

/** Room for names beside the plot; the line charts indent by as much. */
export function namesWidth(width: number): number {
  return width > 700 ? 200 : width > 560 ? 184 : width > 420 ? 164 : 100;
}
