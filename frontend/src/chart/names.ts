/** Writes the names of the rows at the left: the layer where it begins, and what a row is of its layer. */
import { NAN } from "../model/magnitude";
import { beginsLayer, leafOf, withoutShared } from "../model/rows";
import { visibleRows } from "./geometry";
import { LINE, type Label, labelsOf } from "./labels";
import type { Scene } from "./scene";
import { fitted } from "./surface";

/** Left of the names, where pinned rows have their dot; right of them, before the plot. */
const INDENT = 14;
const GUTTER = 8;

export function drawNames(context: CanvasRenderingContext2D, scene: Scene): void {
  const { geometry, rows, marks, pinned } = scene;
  const found = new Set(marks.map((mark) => mark.row));
  // Where most are bad, red names would say nothing that the plot does not.
  const bad = found.size * 2 > rows.length ? new Set<number>() : found;
  const top = visibleRows(geometry).first;
  for (const label of labelsOf(geometry, rows, bad, pinned)) {
    if (label.y < geometry.plot.y - 2 || label.y > geometry.plot.y + geometry.plot.height + 2) continue;
    if (pinned.has(label.row)) drawDot(context, scene, label);
    const spacious = geometry.rowHeight >= LINE;
    const layer = !spacious || label.row === top || beginsLayer(rows, label.row);
    const leaf = spacious || label.bad || pinned.has(label.row);
    drawName(context, scene, label, layer, leaf);
  }
}

function drawDot(context: CanvasRenderingContext2D, { palette }: Scene, label: Label): void {
  context.fillStyle = palette.accent;
  context.beginPath();
  context.arc(6, label.y, 3, 0, 2 * Math.PI);
  context.fill();
}

/** With both parts the layer stands at the left; alone it stands next to its row. */
function drawName(context: CanvasRenderingContext2D, { geometry, palette, rows, shared }: Scene, label: Label, withLayer: boolean, withLeaf: boolean): void {
  const row = rows[label.row];
  if (!row) return;
  const right = geometry.plot.x - GUTTER;
  const room = right - INDENT;
  const y = label.y + 0.5;
  const alarm = label.bad ? palette.trouble[NAN] : undefined;
  const leaf = withLeaf ? fitted(context, leafOf(row), room * 0.55) : "";
  context.fillStyle = alarm ?? palette.faint;
  context.textAlign = "right";
  context.fillText(leaf, right, y);
  if (withLayer && row.layer !== "") {
    const used = leaf === "" ? 0 : context.measureText(leaf).width + GUTTER;
    const layer = fitted(context, withoutShared(row.layer, shared), room - used);
    context.fillStyle = alarm ?? palette.ink;
    context.textAlign = withLeaf ? "left" : "right";
    context.fillText(layer, withLeaf ? INDENT : right, y);
  }
  context.textAlign = "left";
}
