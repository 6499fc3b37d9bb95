/** What the colours mean, with numbers. */
import { useEffect, useRef } from "preact/hooks";
import { decadeTicks } from "../chart/axis";
import { type Decades, PALETTES, css, rampAt } from "../chart/color";
import { prepare } from "../chart/surface";
import { TROUBLES, glyph, hatch, unmeasuredHatch } from "../chart/trouble";
import { formatDecade } from "../model/format";
import { NAN, NEG_INF, POS_INF, UNKNOWN } from "../model/magnitude";
import { theme } from "./session";

const NAMES: Readonly<Record<number, string>> = { [NAN]: "NaN", [POS_INF]: "+Inf", [NEG_INF]: "−Inf", [UNKNOWN]: "not finite" };
const WIDTH = 160;

export function Legend({ decades }: { readonly decades: Decades }) {
  const palette = PALETTES[theme.value];
  const stops = Array.from({ length: 9 }, (_, i) => css(rampAt(palette, i / 8))).join(", ");
  const at = (decade: number): number => ((decade - decades.low) / (decades.high - decades.low)) * WIDTH;
  return (
    <div class="legend">
      <span class="quiet">L2 norm</span>
      <span class="ramp" style={{ width: `${WIDTH}px` }}>
        <i style={{ background: `linear-gradient(to right, ${stops})` }} />
        {decadeTicks(decades.low, decades.high, 4).map((decade) => (
          <span key={decade} style={{ left: `${at(decade)}px` }}>
            {formatDecade(decade)}
          </span>
        ))}
      </span>
      <span class="key">
        <i style={{ background: palette.zero }} /> zero
      </span>
      <span class="key">
        <Swatch state={0} /> not measured
      </span>
      <span class="keys">
        {TROUBLES.map((state) => (
          <span class="key" key={state}>
            <Swatch state={state} /> {NAMES[state]}
          </span>
        ))}
      </span>
    </div>
  );
}

/** A cell as the heatmap paints it. */
function Swatch({ state }: { readonly state: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const palette = PALETTES[theme.value];
  useEffect(() => {
    const context = canvas.current ? prepare(canvas.current, 24, 13) : undefined;
    if (!context) return;
    context.fillStyle = state === 0 ? unmeasuredHatch(context, palette) : (palette.trouble[state] ?? palette.ink);
    context.fillRect(0, 0, 24, 13);
    if (state === 0) return;
    context.fillStyle = hatch(context, palette, state);
    context.fillRect(12, 0, 12, 13);
    glyph(context, state, 6.5, 6.5, 6, palette.onTrouble[state] ?? palette.paper);
  }, [state, palette]);
  return <canvas ref={canvas} aria-hidden="true" />;
}
