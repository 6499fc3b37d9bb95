/** All that the heatmap's picture is made of. */
import type { Shared } from "../model/rows";
import type { TensorRow } from "../model/types";
import type { Colors, Palette } from "./color";
import type { Geometry } from "./geometry";
import type { Mark } from "./marks";
import type { Source } from "./sources";

export const FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

export interface Flag {
  readonly step: number;
  readonly recovered: boolean;
  /** The row where it began, if that is among those shown. */
  readonly row?: number | undefined;
}

export interface Scene {
  readonly geometry: Geometry;
  readonly palette: Palette;
  readonly colors: Colors;
  /** Steps for which a measurement is shown, paler, where the next is not yet there. */
  readonly hold: number;
  readonly rows: readonly TensorRow[];
  readonly blocks: ReadonlyMap<number, readonly Source[]>;
  readonly marks: readonly Mark[];
  /** Marks of the whole run, for the rail. */
  readonly everywhere: readonly Mark[];
  readonly flags: readonly Flag[];
  /** What the path of every layer begins and ends with, which tells none of them apart. */
  readonly shared: Shared;
  readonly pinned: ReadonlySet<number>;
}
