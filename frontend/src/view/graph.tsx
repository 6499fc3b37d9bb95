/** The ops around the origin, drawn: producers at the left, consumers at the right, coloured like the heatmap's trouble. */
import { useId } from "preact/hooks";
import { PALETTES } from "../chart/color";
import { NAN, POS_INF } from "../model/magnitude";
import { type Box, type Edge, type GraphNode, type Neighbourhood, neighbourhoodText, pictureOf, stateText } from "../model/neighbourhood";
import * as session from "./session";

const ARROW = 5;

export function Graph({ around }: { readonly around: Neighbourhood }) {
  const id = useId();
  const { width, height, boxes, edges, heads } = pictureOf(around);
  return (
    <svg class="graph" viewBox={`0 0 ${width} ${height}`} style={{ maxWidth: `${1.3 * width}px` }} role="img" aria-labelledby={id}>
      <title id={id}>{neighbourhoodText(around)}</title>
      {heads.map(({ x, text }) => (
        <text key={text} class="head" x={x} y={11}>
          {text}
        </text>
      ))}
      {edges.map((edge, index) => (
        <Arrow key={index} edge={edge} />
      ))}
      {boxes.map((box, index) => (
        <Op key={index} box={box} />
      ))}
    </svg>
  );
}

/** The colour of an op's damage; undefined where it was finite. */
function colorOf({ state }: GraphNode): string | undefined {
  const { trouble } = PALETTES[session.theme.value];
  return state.includes("nan") ? trouble[NAN] : state.length > 0 ? trouble[POS_INF] : undefined;
}

function Op({ box }: { readonly box: Box }) {
  const { node, x, y, width, height, name, place } = box;
  const color = colorOf(node);
  const line = (index: number): number => y + 16 + 14 * index;
  const times = node.times > 1 ? ` ×${node.times}` : "";
  return (
    <g class={`box ${box.role}${color === undefined ? "" : " hurt"}`} style={color === undefined ? {} : { "--state": color }}>
      <title>{[`${node.op}${times}`, node.layer, node.stage, stateText(node)].filter((part) => part !== "").join("\n")}</title>
      <rect x={x} y={y} width={width} height={height} rx="4" />
      {color !== undefined && <rect class="bar" x={x} y={y} width="5" height={height} rx="2" />}
      {name.map((text, index) => (
        <text key={index} class="op" x={x + 11} y={line(index)}>
          {text}
          {index === name.length - 1 && times}
        </text>
      ))}
      {place !== "" && (
        <text class="place" x={x + 11} y={line(name.length)}>
          {place}
        </text>
      )}
      <text class="state" x={x + 11} y={line(name.length + (place === "" ? 0 : 1))}>
        {stateText(node)}
      </text>
    </g>
  );
}

function Arrow({ edge: { from, to } }: { readonly edge: Edge }) {
  const [x1, y1] = [from.x + from.width, from.y + from.height / 2];
  const [x2, y2] = [to.x - 1, to.y + to.height / 2];
  const middle = (x1 + x2 - ARROW) / 2;
  const color = colorOf(from.node);
  return (
    <g class="edge" style={color === undefined ? {} : { "--state": color }}>
      <path d={`M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2 - ARROW} ${y2}`} />
      <polygon points={`${x2},${y2} ${x2 - ARROW},${y2 - ARROW / 1.6} ${x2 - ARROW},${y2 + ARROW / 1.6}`} />
    </g>
  );
}
