/** The tab in a real browser, as its user meets it. */
import { existsSync } from "node:fs";
import { type Browser, type FrameLocator, type Locator, type Page, chromium } from "playwright-core";

const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

export function launch(): Promise<Browser> {
  const executablePath = process.env["CHROMIUM"] ?? PLACES.find((path) => existsSync(path));
  if (executablePath === undefined) throw new Error(`there is no Chromium at ${PLACES.join(", ")}; set CHROMIUM to its path`);
  return chromium.launch({
    executablePath,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
}

export interface Rgb {
  readonly red: number;
  readonly green: number;
  readonly blue: number;
}

export class Tab {
  readonly frame: FrameLocator;
  readonly canvas: Locator;
  readonly problems: string[] = [];

  private constructor(readonly page: Page) {
    this.frame = page.frameLocator("iframe");
    this.canvas = this.frame.locator(".figure canvas").first();
  }

  static async open(browser: Browser, url: string, hash = "#nanwatch", size = { width: 1280, height: 900 }): Promise<Tab> {
    const page = await browser.newPage({ viewport: size });
    const tab = new Tab(page);
    page.on("console", (message) => {
      // TensorBoard itself asks for fonts that it lacks under a path prefix; only what our frame says is ours.
      if (message.type() === "error" && message.location().url.includes("nanwatch")) tab.problems.push(message.text());
      if (/Content Security Policy|Content-Security-Policy/.test(message.text())) tab.problems.push(message.text());
    });
    page.on("pageerror", (error) => tab.problems.push(String(error.stack)));
    await page.goto(url + hash);
    return tab;
  }

  get headline(): Locator {
    return this.frame.getByRole("heading", { level: 1 });
  }

  /** Waits until every tile of the view is there and painted. */
  async painted(): Promise<void> {
    await this.frame.locator('.figure canvas[data-ready="true"]').waitFor();
    await this.page.waitForTimeout(100); // one more frame, for what the last arrival painted
  }

  /** How many pixels of the heatmap's canvas, in a part of it given in shares, have nearly this colour. */
  pixels(color: Rgb, part = { left: 0, top: 0, right: 1, bottom: 1 }): Promise<number> {
    return this.canvas.evaluate(
      (element, { color, part }) => {
        const canvas = element as HTMLCanvasElement;
        const [x, y] = [Math.round(canvas.width * part.left), Math.round(canvas.height * part.top)];
        const [width, height] = [Math.round(canvas.width * part.right) - x, Math.round(canvas.height * part.bottom) - y];
        const { data } = canvas.getContext("2d")!.getImageData(x, y, width, height);
        let count = 0;
        for (let i = 0; i < data.length; i += 4) {
          const distance = Math.abs(data[i]! - color.red) + Math.abs(data[i + 1]! - color.green) + Math.abs(data[i + 2]! - color.blue);
          if (distance < 24 && data[i + 3]! > 200) count++;
        }
        return count;
      },
      { color, part },
    );
  }

  /** Moves the pointer to a place in the heatmap, given in shares of its canvas. */
  async point(x: number, y: number): Promise<void> {
    const box = await this.frame.locator("canvas.overlay").boundingBox();
    if (!box) throw new Error("the heatmap is not shown");
    await this.page.mouse.move(box.x + x * box.width, box.y + y * box.height, { steps: 2 });
  }

  hash(): string {
    return new URL(this.page.url()).hash;
  }

  async close(): Promise<void> {
    await this.page.close();
  }
}
