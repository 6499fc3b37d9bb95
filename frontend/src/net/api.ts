/** The routes of http_api.md, addressed relative to the page so that they work under any path prefix. */
import { type Series, type Tile, decodeSeries, decodeTile } from "../model/decode";
import { BLOCK_ROWS, type TileKey } from "../model/tiles";
import type { Cell, Report, RunsAnswer, Stat, Tables } from "../model/types";

/** The server answered, but not with what was asked for. `status` is HTTP's. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** Parameters that are null are left out. */
type Parameters = Readonly<Record<string, string | number | null>>;

async function get(route: string, parameters: Parameters, signal: AbortSignal | undefined): Promise<Response> {
  const url = new URL(route, document.baseURI);
  for (const [name, value] of Object.entries(parameters)) if (value !== null) url.searchParams.set(name, String(value));
  const answer = await fetch(url, signal === undefined ? {} : { signal });
  if (!answer.ok) {
    const plain = answer.headers.get("content-type")?.startsWith("text/plain") === true;
    const reason = plain ? (await answer.text()).slice(0, 400) : `${answer.status} ${answer.statusText}`;
    throw new Refused(answer.status, `${route}: ${reason}`);
  }
  return answer;
}

export async function fetchRuns(signal?: AbortSignal): Promise<RunsAnswer> {
  return (await (await get("runs", {}, signal)).json()) as RunsAnswer;
}

export async function fetchReport(run: string, signal?: AbortSignal): Promise<Report> {
  return (await (await get("report", { run }, signal)).json()) as Report;
}

export async function fetchTables(run: string, signal?: AbortSignal): Promise<Tables> {
  return (await (await get("tensors", { run }, signal)).json()) as Tables;
}

export async function fetchCell(run: string, attempt: number | null, tag: string, step: number, signal?: AbortSignal): Promise<Cell> {
  return (await (await get("cell", { run, attempt, tag, step }, signal)).json()) as Cell;
}

export interface SeriesQuery {
  readonly run: string;
  readonly attempt: number | null;
  readonly tag: string;
  readonly stat: Stat | "value";
  readonly first: number;
  readonly last: number;
  readonly bins: number;
}

export async function fetchSeries(query: SeriesQuery, signal?: AbortSignal): Promise<Series> {
  return decodeSeries(await (await get("series", { ...query }, signal)).arrayBuffer());
}

export async function fetchTile(key: TileKey, rowCount: number, signal?: AbortSignal): Promise<Tile> {
  const first = key.block * BLOCK_ROWS;
  const last = Math.min(rowCount, first + BLOCK_ROWS);
  const query = { run: key.run, attempt: key.attempt, kind: key.kind, level: key.level, tile: key.tile, rows: `${first}:${last}` };
  const tile = decodeTile(await (await get("tile", query, signal)).arrayBuffer());
  if (tile.rows !== last - first) throw new Error(`a tile has ${tile.rows} rows where ${last - first} were asked for`);
  return tile;
}
