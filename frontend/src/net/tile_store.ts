/**
 * Tiles at hand. A view says which it wants, most urgent first; what is missing is fetched, a few at a time, and what
 * nobody wants any more is aborted. After the run changed, tiles stay on show until their successors arrive.
 */
import type { Tile } from "../model/decode";
import { type TileKey, keyText } from "../model/tiles";

const AT_ONCE = 4;
const BYTES_KEPT = 96 << 20;
/** A tile that failed is not asked for again before the next change of the run. */
interface Entry {
  readonly tile: Tile | undefined;
  readonly version: string;
}

export type Load = (key: TileKey, signal: AbortSignal) => Promise<Tile>;

export class TileStore {
  private readonly entries = new Map<string, Entry>();
  private readonly flying = new Map<string, AbortController>();
  private queue: readonly TileKey[] = [];
  private version = "";
  private bytes = 0;

  constructor(
    private readonly load: Load,
    private readonly changed: () => void,
    private readonly failed: (error: unknown) => void,
  ) {}

  get(key: TileKey): Tile | undefined {
    return this.entries.get(keyText(key))?.tile;
  }

  /** True while anything that is wanted is neither here nor refused. */
  get waiting(): boolean {
    return this.queue.some((key) => !this.settled(keyText(key)));
  }

  want(keys: readonly TileKey[], version: string): void {
    if (version !== this.version) {
      this.version = version;
      for (const controller of this.flying.values()) controller.abort();
      this.flying.clear();
    }
    this.queue = keys;
    const names = new Set(keys.map(keyText));
    for (const [name, controller] of this.flying) {
      if (names.has(name)) continue;
      controller.abort();
      this.flying.delete(name);
    }
    for (const name of names) this.touch(name);
    this.pump();
  }

  private settled(name: string): boolean {
    return this.entries.get(name)?.version === this.version;
  }

  /** Most recently wanted last, which is the order of a Map and of eviction. */
  private touch(name: string): void {
    const entry = this.entries.get(name);
    if (!entry) return;
    this.entries.delete(name);
    this.entries.set(name, entry);
  }

  private pump(): void {
    for (const key of this.queue) {
      if (this.flying.size >= AT_ONCE) return;
      const name = keyText(key);
      if (this.flying.has(name) || this.settled(name)) continue;
      void this.start(key, name);
    }
  }

  private async start(key: TileKey, name: string): Promise<void> {
    const controller = new AbortController();
    this.flying.set(name, controller);
    const version = this.version;
    let tile: Tile | undefined;
    try {
      tile = await this.load(key, controller.signal);
    } catch (error) {
      if (controller.signal.aborted) return;
      tile = this.entries.get(name)?.tile;
      this.failed(error);
    }
    if (controller.signal.aborted) return; // a stale answer: somebody asked for something else meanwhile
    this.flying.delete(name);
    this.put(name, { tile, version });
    this.changed();
    this.pump();
  }

  private put(name: string, entry: Entry): void {
    this.bytes += sizeOf(entry) - sizeOf(this.entries.get(name));
    this.entries.delete(name);
    this.entries.set(name, entry);
    const kept = new Set(this.queue.map(keyText));
    for (const [old, oldEntry] of this.entries) {
      if (this.bytes <= BYTES_KEPT) break;
      if (kept.has(old)) continue;
      this.bytes -= sizeOf(oldEntry);
      this.entries.delete(old);
    }
  }
}

function sizeOf(entry: Entry | undefined): number {
  return entry?.tile === undefined ? 0 : 5 * entry.tile.state.length + 4 * entry.tile.bad.length;
}
