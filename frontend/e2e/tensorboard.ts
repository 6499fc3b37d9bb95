/** A TensorBoard of our own on a free port, and runs to look at. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const PYTHON = process.env["PYTHON"] ?? "python3";
const REPOSITORY = join(import.meta.dirname, "..", "..");
const MAKE_RUNS = join(import.meta.dirname, "make_runs.py");
const SECONDS_TO_START = 90;

/** The repository's own package, whatever else is installed. */
function environment(): NodeJS.ProcessEnv {
  return { ...process.env, PYTHONPATH: [REPOSITORY, process.env["PYTHONPATH"] ?? ""].filter((part) => part !== "").join(":") };
}

export function makeLogdir(): string {
  return mkdtempSync(join(tmpdir(), "nanwatch-e2e-"));
}

export function makeRuns(logdir: string): void {
  execFileSync(PYTHON, [MAKE_RUNS, logdir], { env: environment() });
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => (address !== null && typeof address === "object" ? resolve(address.port) : reject(new Error("no port"))));
    });
  });
}

export class TensorBoard {
  private constructor(
    readonly url: string,
    private readonly process: ChildProcess,
  ) {}

  /** Starts on `logdir` and waits until it answers. Throws with its output if it does not. */
  static async start(logdir: string, options: readonly string[] = [], prefix = "", port?: number): Promise<TensorBoard> {
    port ??= await freePort();
    const args = ["-m", "tensorboard.main", "--logdir", logdir, "--host", "127.0.0.1", "--port", String(port), "--path_prefix", prefix, "--reload_interval", "1", ...options];
    const process = spawn(PYTHON, args, { env: environment(), stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    process.stdout.on("data", (data: Buffer) => (output += data.toString()));
    process.stderr.on("data", (data: Buffer) => (output += data.toString()));
    const url = `http://127.0.0.1:${port}${prefix}/`;
    const until = Date.now() + 1000 * SECONDS_TO_START;
    while (Date.now() < until && process.exitCode === null) {
      const answer = await fetch(`${url}data/plugin/nanwatch/runs`).catch(() => undefined);
      if (answer?.ok && !((await answer.json()) as { loading: boolean }).loading) return new TensorBoard(url, process);
      await new Promise((resolve) => setTimeout(resolve, 250));
    }
    process.kill();
    throw new Error(`TensorBoard did not answer on ${url} with the plugin's runs:\n${output.slice(-4000)}`);
  }

  get port(): number {
    return Number(new URL(this.url).port);
  }

  async stop(): Promise<void> {
    if (this.process.exitCode !== null) return;
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill();
    await ended;
  }
}

/** A run that is being written while the browser looks. */
export class LiveRun {
  private readonly process: ChildProcess;
  private readonly lines: AsyncIterator<string>;

  constructor(logdir: string) {
    this.process = spawn(PYTHON, [MAKE_RUNS, logdir, "--live"], { env: environment(), stdio: ["pipe", "pipe", "inherit"] });
    this.lines = createInterface({ input: this.process.stdout! })[Symbol.asyncIterator]();
  }

  /** Appends 50 steps; they are on the disk when this returns the number of steps. */
  async append(): Promise<number> {
    this.process.stdin!.write("more\n");
    return Number((await this.lines.next()).value);
  }

  async close(): Promise<void> {
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.stdin!.end();
    await ended;
  }
}

export function removeLogdir(logdir: string): void {
  rmSync(logdir, { recursive: true, force: true });
}
