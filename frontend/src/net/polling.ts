/** Asks again and again, as often as the server says; more rarely while it does not answer; not while nobody looks. */

const SLOWEST_SECONDS = 30;

export interface Poll {
  /** One round; returns the seconds until the next, 0 for never. A rejection is a failed round. */
  readonly round: (signal: AbortSignal) => Promise<number>;
  readonly failed: (error: unknown, retrySeconds: number) => void;
  /** TensorBoard keeps the pages of tabs that are not shown, at height 0 and "visible". */
  readonly hidden: () => boolean;
}

export class Poller {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private controller: AbortController | undefined;
  private failures = 0;
  private due = false;

  constructor(private readonly poll: Poll) {}

  /** Ask now, whatever is planned. */
  async now(): Promise<void> {
    clearTimeout(this.timer);
    this.controller?.abort();
    const controller = new AbortController();
    this.controller = controller;
    this.due = false;
    let seconds: number;
    try {
      seconds = await this.poll.round(controller.signal);
      this.failures = 0;
    } catch (error) {
      if (controller.signal.aborted) return;
      seconds = Math.min(SLOWEST_SECONDS, 2 ** this.failures);
      this.failures++;
      this.poll.failed(error, seconds);
    }
    if (controller.signal.aborted || seconds <= 0) return;
    this.timer = setTimeout(() => this.tick(), seconds * 1000);
  }

  /** The page is looked at again: catch up with what was put off. */
  woke(): void {
    if (this.due && !this.poll.hidden()) void this.now();
  }

  stop(): void {
    clearTimeout(this.timer);
    this.controller?.abort();
  }

  private tick(): void {
    if (this.poll.hidden()) this.due = true;
    else void this.now();
  }
}
