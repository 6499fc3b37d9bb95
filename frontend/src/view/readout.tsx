/** What is under the pointer, in numbers: beside it as a tooltip, and as one sentence for a screen reader. */
import { useEffect, useState } from "preact/hooks";
import { formatCount, formatCounts, formatNumber, formatShape, formatShare, formatSteps, fromJson } from "../model/format";
import { MEASURED, magnitudeOf, stateWords } from "../model/magnitude";
import type { Cell, JsonNumber } from "../model/types";
import { fetchCell } from "../net/api";
import type { Spot } from "./heatmap_view";
import { run, selection } from "./session";

const PATIENCE_MS = 140;

/** The full numbers of a single step, fetched once the pointer rests. */
function useCell(spot: Spot | undefined): Cell | undefined {
  const [cell, setCell] = useState<Cell | undefined>(undefined);
  const step = spot?.bin && spot.bin.first === spot.bin.last ? spot.bin.first : undefined;
  const tag = spot?.tensor.tag;
  useEffect(() => {
    setCell(undefined);
    const name = run.peek()?.run;
    if (step === undefined || tag === undefined || name === undefined) return;
    const controller = new AbortController();
    const timer = setTimeout(() => {
      // The tooltip already says what the tile knows: a refusal only leaves out the details.
      fetchCell(name, selection.peek().attempt, tag, step, controller.signal).then(setCell, () => undefined);
    }, PATIENCE_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [tag, step]);
  return cell && cell.tag === tag && cell.step === step ? cell : undefined;
}

export function normText(spot: Spot): string {
  const { bin } = spot;
  if (!bin) return "";
  const [low, high] = [magnitudeOf(bin.low), magnitudeOf(bin.high)];
  if (low === undefined || high === undefined) return bin.state & ~MEASURED ? "" : "not measured";
  return bin.low === bin.high ? formatNumber(high) : `${formatNumber(low)} to ${formatNumber(high)}`;
}

/** One sentence: "dense/kernel, step 41: NaN, norm 12.5". */
export function sentence(spot: Spot): string {
  const { bin, tensor } = spot;
  if (!bin) return tensor.name;
  const norm = normText(spot);
  const parts = [stateWords(bin.state), norm === "" || norm === "not measured" ? norm : `norm ${norm}`].filter((part) => part !== "");
  return `${tensor.name}, ${formatSteps(bin.first, bin.last)}: ${parts.join(", ")}`;
}

interface TooltipProps {
  readonly spot: Spot;
  /** Where the pointer is in the figure, and the figure's size, in CSS pixels. */
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** On the side of the pointer where there is more room, so that it hides as little as possible. */
export function Tooltip({ spot, x, y, width, height }: TooltipProps) {
  const cell = useCell(spot);
  const { tensor, bin } = spot;
  const trouble = bin ? stateWords(bin.state) : "";
  const across = x > width / 2 ? { right: `${width - x + 16}px` } : { left: `${x + 16}px` };
  const down = y > height / 2 ? { bottom: `${height - y + 10}px` } : { top: `${y + 14}px` };
  return (
    <div class="tooltip" style={{ ...across, ...down }} role="presentation">
      <strong>{tensor.name}</strong>
      <div class="quiet">
        {[tensor.layer_class, tensor.dtype, formatShape(tensor.shape)].filter((part) => part !== "").join(" · ")}
      </div>
      {bin && (
        <dl>
          <Fact name={bin.first === bin.last ? "Step" : "Steps"} value={bin.first === bin.last ? formatCount(bin.first) : `${formatCount(bin.first)}–${formatCount(bin.last)}`} />
          {trouble !== "" && <Fact name="State" value={trouble} loud />}
          {normText(spot) !== "" && <Fact name="Norm" value={normText(spot)} />}
        </dl>
      )}
      {cell && <Details cell={cell} />}
    </div>
  );
}

function Details({ cell }: { readonly cell: Cell }) {
  const { full, counts } = cell;
  const counted = formatCounts(counts);
  return (
    <dl>
      {counts && counted !== "" && <Fact name={counts.step === cell.step ? "Counted" : `Counted at ${formatCount(counts.step)}`} value={counted} loud={counts.step === cell.step} />}
      {full && (
        <>
          <Fact name={full.step === cell.step ? "Max |x|" : `Max |x| at ${formatCount(full.step)}`} value={numberText(full.max_abs)} />
          <Fact name="Mean" value={numberText(full.mean)} />
          <Fact name="Zeros" value={shareText(full.zero_share)} />
          <Fact name="Subnormal" value={shareText(full.subnormal_share)} />
          <Fact name="Headroom" value={numberText(full.headroom_octaves, " octaves")} />
          <Fact name="Update / weight" value={numberText(full.update_ratio)} />
        </>
      )}
      {cell.iteration !== null && cell.iteration !== undefined && cell.iteration >= 0 && <Fact name="Iteration" value={formatCount(cell.iteration)} />}
    </dl>
  );
}

function numberText(value: JsonNumber | null, unit = ""): string {
  const number = fromJson(value);
  return number === undefined ? "" : formatNumber(number) + unit;
}

function shareText(value: JsonNumber | null): string {
  const number = fromJson(value);
  return number === undefined ? "" : formatShare(number);
}

function Fact({ name, value, loud = false }: { readonly name: string; readonly value: string; readonly loud?: boolean }) {
  if (value === "") return null;
  return (
    <>
      <dt>{name}</dt>
      <dd class={loud ? "loud" : ""}>{value}</dd>
    </>
  );
}
