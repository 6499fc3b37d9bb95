import type { Browser } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { PALETTES, parseHex } from "../src/chart/color";
import { NAN } from "../src/model/magnitude";
import { type Rgb, Tab, launch } from "./tab";
import { LiveRun, TensorBoard, makeLogdir, makeRuns, removeLogdir } from "./tensorboard";

function colorOf(state: number): Rgb {
  const [red, green, blue] = parseHex(PALETTES.light.trouble[state]!);
  return { red, green, blue };
}

const RED = colorOf(NAN);

let browser: Browser;
let tab: Tab;

beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());
afterEach(async () => {
  const problems = tab.problems;
  await tab.close();
  expect(problems).toEqual([]);
});

describe("with runs, below a path prefix", () => {
  const logdir = makeLogdir();
  let board: TensorBoard;

  beforeAll(async () => {
    makeRuns(logdir);
    board = await TensorBoard.start(logdir, [], "/some/where");
  });
  afterAll(async () => {
    await board.stop();
    removeLogdir(logdir);
  });

  test("says what happened, where it began and how it spread", async () => {
    tab = await Tab.open(browser, board.url, "#nanwatch&p.nanwatch.run=blowup");
    await tab.headline.waitFor();
    expect(await tab.headline.textContent()).toMatch(/step 90\b.*head\/kernel/);
    const main = tab.frame.getByRole("main");
    expect(await main.locator(".facts").textContent()).toContain("Last finite step89");
    expect(await tab.frame.locator(".incident.open").textContent()).toContain("7 +Inf of 2,048");
    expect(await tab.frame.locator(".spread li").allTextContents()).toEqual(["backwardhead/kernel", "backwardconv/kernel", "weightsconv/kernel"]);
    expect(await tab.frame.locator("nav .run .name").allTextContents()).toEqual(["blowup", "flash", "healthy", "op", "twice"]);
    expect(await tab.frame.getByRole("radio", { name: "Gradients" }).getAttribute("aria-checked")).toBe("true");
  });

  test("a replayed incident names the op, its line, inputs, samples, replica and neighbours", async () => {
    tab = await Tab.open(browser, board.url, "#nanwatch&p.nanwatch.run=op");
    await tab.painted();
    const main = tab.frame.getByRole("main");
    expect(await main.locator(".verdict").textContent()).toMatch(/Sqrt.* at train\.py:34/);
    expect(await main.locator(".lead .written").textContent()).toBe("return tf.sqrt(error)  # <b>bold</b>");
    expect(await main.locator(".verdict").textContent()).not.toContain("`");
    const body = main.locator(".incident.open .incident-body");
    expect(await body.locator(".source").textContent()).toBe("…/project/train.py:34 in rmsereturn tf.sqrt(error)  # <b>bold</b>");
    expect(await body.locator(".operands tbody tr").allTextContents()).toEqual(["Sqrtfloat32, 320 to 1.9642 zeros", "maskfloat32, 32 × 4−3 to 21 NaN126 Inf1 negative"]);
    expect(await body.locator(".operands .bad").allTextContents()).toHaveLength(1);
    expect(await body.locator(".operands tfoot").textContent()).toBe("Output2 +Inf of 32");
    expect(await body.textContent()).toContain("samples 3, 17 of the batchreplica 1");
    expect(await body.textContent()).toContain("Found by running 9 steps again, the last one op by op in 0.37 s.");
    const graph = body.getByRole("img", { name: /^From Sqrt \(forward, finite\)\. SqrtGrad \(backward, Inf\) made the first bad value\. It went to 2 times <b>Mul<\/b> in head \(backward, NaN\)\.$/ });
    await graph.waitFor();
    expect(await graph.locator(".box .op").allTextContents()).toEqual(["Sqrt", "SqrtGrad", "<b>Mul</b> ×2"]);
    expect(await graph.locator(".box.hurt").count()).toBe(2);
    // Where the op is no row of the heatmap, the first tensor that its damage reached is shown.
    expect(await tab.frame.getByRole("radio", { name: "Gradients" }).getAttribute("aria-checked")).toBe("true");
    expect(await tab.frame.locator("figure.line").nth(1).locator("figcaption").textContent()).toContain("head/bias");
    const overflow = await tab.frame.locator("html").evaluate((html) => html.scrollWidth - html.clientWidth);
    expect(overflow).toBe(0);
  });

  test("one NaN in 20,000 steps is seen at full zoom-out and after zooming in on it", async () => {
    tab = await Tab.open(browser, board.url, "#nanwatch&p.nanwatch.run=flash");
    await tab.painted();
    const plot = { left: 0.3, top: 0.3, right: 0.96, bottom: 0.7 };
    expect(await tab.pixels(RED, plot)).toBeGreaterThanOrEqual(3 * 8);
    await tab.frame.getByRole("button", { name: /^step 12,345/ }).click();
    await tab.painted();
    expect(await tab.frame.locator(".range").textContent()).toMatch(/^steps 12,3\d\d–12,3\d\d$/);
    expect(await tab.pixels(RED, plot)).toBeGreaterThanOrEqual(5 * 8);
    // Away from the step, in another stretch of the run, there is none.
    await tab.frame.locator("canvas.overlay").focus();
    expect(await tab.pixels(RED, { ...plot, right: 0.5 })).toBe(0);
  });

  test("the wheel zooms at the pointer, the keyboard too, Home shows the whole run again", async () => {
    tab = await Tab.open(browser, board.url, "#nanwatch&p.nanwatch.run=flash");
    await tab.painted();
    const range = tab.frame.locator(".range");
    await tab.point(0.6, 0.5);
    await tab.page.mouse.wheel(0, -400);
    await expect.poll(() => range.textContent()).not.toBe("steps 0–19,999");
    const afterWheel = await range.textContent();
    await tab.frame.locator("canvas.overlay").press("+");
    await expect.poll(() => range.textContent()).not.toBe(afterWheel);
    await tab.frame.locator("canvas.overlay").press("Home");
    await expect.poll(() => range.textContent()).toBe("steps 0–19,999");
  });

  test("switches kinds, and asks for the tiles of the one that is shown", async () => {
    tab = await Tab.open(browser, board.url, "#nanwatch&p.nanwatch.run=blowup");
    await tab.painted();
    const asked = tab.page.waitForRequest((request) => /tile\?.*kind=weight/.test(request.url()));
    await tab.frame.getByRole("radio", { name: "Weights" }).click();
    await asked;
    await tab.painted();
    expect(tab.hash()).not.toContain("kind=gradient");
    await expect.poll(() => tab.hash()).toContain("p.nanwatch.kind=weight");
  });

  test("what the optimizer applied is a kind of its own where there is any, and drawn beside the gradient", async () => {
    tab = await Tab.open(browser, board.url, "#nanwatch&p.nanwatch.run=healthy&p.nanwatch.pins=gradient%252Fhead%252Fkernel,applied%252Fhead%252Fkernel,gradient%252Fhead%252Fbias");
    await tab.painted();
    const charts = tab.frame.locator("figure.line");
    expect(await charts.count()).toBe(3); // the loss, the kernel before and after in one, the bias
    await expect.poll(() => charts.nth(1).locator("figcaption").textContent()).toMatch(/^×head\/kernel gradients · L2 norm.*as applied 0\.02\d*0\.2\d* at step 299$/);
    expect(await charts.nth(2).locator(".beside").count()).toBe(0);
    await tab.frame.getByRole("button", { name: "Unpin head/kernel" }).click();
    await expect.poll(() => charts.count()).toBe(2);
    await tab.frame.getByRole("radio", { name: "Applied gradients" }).click();
    await tab.painted();
    await tab.frame.locator("nav .run", { has: tab.page.locator(".name", { hasText: "twice" }) }).click();
    await tab.painted();
    expect(await tab.frame.getByRole("radio").allTextContents()).toEqual(["Weights", "Gradients", "Activations", "Updates"]);
  });

  test("hovering reads out the tensor and the numbers of the step", async () => {
    tab = await Tab.open(browser, board.url, "#nanwatch&p.nanwatch.run=blowup&p.nanwatch.kind=gradient&p.nanwatch.steps=80~100");
    await tab.painted();
    await tab.point(0.9, 0.75);
    const tooltip = tab.frame.locator(".tooltip");
    await tooltip.waitFor();
    expect(await tooltip.textContent()).toContain("head/kernel");
    expect(await tooltip.textContent()).toContain("64 × 32");
    expect(await tooltip.textContent()).toContain("NaN");
    await tooltip.getByText("Headroom").waitFor();
  });

  test("names are text, whatever they look like", async () => {
    tab = await Tab.open(browser, board.url, "#nanwatch&p.nanwatch.run=blowup&p.nanwatch.kind=weight&p.nanwatch.steps=0~20");
    await tab.painted();
    await tab.point(0.6, 0.5);
    await expect.poll(() => tab.frame.locator(".tooltip strong").textContent()).toContain("encoder/<b>mid</b>/");
    expect(await tab.frame.locator("b", { hasText: /^mid$/ }).count()).toBe(0);
  });

  test("a click pins a tensor to the charts, another takes it off; the statistic can be chosen", async () => {
    tab = await Tab.open(browser, board.url, "#nanwatch&p.nanwatch.run=healthy&p.nanwatch.kind=weight");
    await tab.painted();
    const charts = tab.frame.locator("figure.line");
    expect(await charts.count()).toBe(1);
    await tab.point(0.6, 0.25);
    await tab.page.mouse.down();
    await tab.page.mouse.up();
    await expect.poll(() => charts.count()).toBe(2);
    await expect.poll(() => charts.nth(1).locator(".value").textContent()).toMatch(/^\S+ at step 15\d$/); // where the pointer is
    await tab.page.mouse.move(5, 5);
    expect(await charts.nth(1).locator("figcaption").textContent()).toContain("conv/kernel");
    await expect.poll(() => charts.nth(1).locator(".value").textContent()).toMatch(/^(2\.99|3)\S* at step 299$/);
    await tab.frame.getByRole("combobox").selectOption("max_abs");
    await expect.poll(() => charts.nth(1).locator(".value").textContent()).toMatch(/^0\.7\d* at step 290$/);
    await tab.frame.getByRole("button", { name: "Unpin conv/kernel" }).click();
    await expect.poll(() => charts.count()).toBe(1);
  });

  test("dragging over a line chart zooms all charts to that stretch, a double click takes it back", async () => {
    tab = await Tab.open(browser, board.url, "#nanwatch&p.nanwatch.run=flash");
    await tab.painted();
    const plot = tab.frame.locator("figure.line .u-over").first();
    await plot.scrollIntoViewIfNeeded();
    const box = (await plot.boundingBox())!;
    await tab.page.mouse.move(box.x + box.width * 0.25, box.y + 40);
    await tab.page.mouse.down();
    await tab.page.mouse.move(box.x + box.width * 0.5, box.y + 40, { steps: 4 });
    await tab.page.mouse.up();
    await expect.poll(() => tab.frame.locator(".range").textContent()).toMatch(/^steps (4,9|5,0)\d\d–(9,9|10,0)\d\d$/);
    await plot.dblclick();
    await expect.poll(() => tab.frame.locator(".range").textContent()).toBe("steps 0–19,999");
  });

  test("follows TensorBoard's dark mode at once", async () => {
    tab = await Tab.open(browser, board.url, "#nanwatch&p.nanwatch.run=healthy");
    await tab.painted();
    const background = (): Promise<string> => tab.frame.locator("body").evaluate((body) => getComputedStyle(body).backgroundColor);
    expect(await background()).toBe("rgb(255, 255, 255)");
    for (const [choice, color] of [["Dark", "rgb(27, 29, 33)"], ["Light", "rgb(255, 255, 255)"]] as const) {
      await tab.page.locator("app-header-dark-mode-toggle button").click();
      await tab.page.getByRole("menuitem", { name: choice }).click();
      await expect.poll(background).toBe(color);
    }
  });

  test("the address bar's link brings another browser to the same view, without filling its history", async () => {
    tab = await Tab.open(browser, board.url, "#nanwatch&p.nanwatch.run=flash&p.nanwatch.kind=weight&p.nanwatch.pins=weight%252Fconv%252Fbias");
    await tab.painted();
    const length = await tab.page.evaluate(() => history.length);
    for (let i = 0; i < 3; i++) await tab.frame.getByRole("button", { name: "Zoom in" }).click();
    await expect.poll(() => tab.hash()).toContain("p.nanwatch.steps=8750~11250");
    expect(await tab.page.evaluate(() => history.length)).toBe(length);
    const link = tab.hash();
    await tab.close();
    tab = await Tab.open(browser, board.url, link);
    await tab.painted();
    expect(await tab.frame.locator(".range").textContent()).toBe("steps 8,750–11,249");
    expect(await tab.frame.getByRole("radio", { name: "Weights" }).getAttribute("aria-checked")).toBe("true");
    expect(await tab.frame.locator("figure.line").nth(1).locator("figcaption").textContent()).toContain("conv/bias");
    expect(await tab.frame.locator("nav .run[aria-selected=true] .name").textContent()).toBe("flash");
  });

  test("a link to a run that is not there says so and offers the others", async () => {
    tab = await Tab.open(browser, board.url, "#nanwatch&p.nanwatch.run=gone");
    await tab.frame.getByText("There is no run named gone").waitFor();
    await tab.frame.locator("nav .run", { has: tab.page.locator(".name", { hasText: "healthy" }) }).click();
    await tab.painted();
  });

  test("an older attempt of a run can be looked at", async () => {
    tab = await Tab.open(browser, board.url, "#nanwatch&p.nanwatch.run=twice&p.nanwatch.kind=weight");
    await tab.painted();
    expect(await tab.frame.locator(".range").textContent()).toBe("steps 0–259");
    const asked = tab.page.waitForRequest((request) => /tile\?.*attempt=0/.test(request.url()));
    await tab.frame.getByRole("combobox", { name: "Attempt" }).selectOption("0");
    await asked;
    await tab.painted();
    expect(await tab.frame.locator(".range").textContent()).toBe("steps 0–199");
    await expect.poll(() => tab.hash()).toContain("p.nanwatch.attempt=0");
  });

  test("arrow keys walk through the cells and say what is there", async () => {
    tab = await Tab.open(browser, board.url, "#nanwatch&p.nanwatch.run=blowup&p.nanwatch.kind=gradient&p.nanwatch.steps=84~94");
    await tab.painted();
    const canvas = tab.frame.locator("canvas.overlay");
    await canvas.focus();
    await canvas.press("ArrowRight");
    const spoken = tab.frame.locator("[aria-live=polite]");
    await expect.poll(() => spoken.textContent()).toMatch(/, step 89: norm/);
    await canvas.press("ArrowRight");
    await canvas.press("ArrowRight");
    await expect.poll(() => spoken.textContent()).toMatch(/, step 91: NaN/);
    await canvas.press("ArrowUp");
    await expect.poll(() => spoken.textContent()).toMatch(/^encoder\/<b>mid<\/b>\/\w+, step 91: NaN/);
    await canvas.press("Enter");
    await expect.poll(() => tab.hash()).toContain("p.nanwatch.pins=");
  });

  test("fits a window of 480 pixels", async () => {
    tab = await Tab.open(browser, board.url, "#nanwatch&p.nanwatch.run=blowup", { width: 480, height: 900 });
    await tab.painted();
    const overflow = await tab.frame.locator("html").evaluate((html) => html.scrollWidth - html.clientWidth);
    expect(overflow).toBe(0);
    expect(await tab.pixels(RED, { left: 0.3, top: 0.2, right: 0.96, bottom: 0.9 })).toBeGreaterThan(100);
  });
});

describe("while it is written", () => {
  const logdir = makeLogdir();
  let board: TensorBoard;
  let live: LiveRun;

  beforeAll(async () => {
    board = await TensorBoard.start(logdir);
  });
  afterAll(async () => {
    await live.close();
    await board.stop();
    removeLogdir(logdir);
  });

  test("an empty folder says how to begin; a run that starts appears and grows by itself", async () => {
    tab = await Tab.open(browser, board.url);
    await tab.frame.getByText("callbacks=[nanwatch.NanWatch(").waitFor();
    expect(await tab.headline.textContent()).toBe("No recorded runs here yet");

    live = new LiveRun(logdir);
    expect(await live.append()).toBe(50);
    const range = tab.frame.locator(".range");
    await expect.poll(() => range.textContent(), { timeout: 20_000 }).toBe("steps 0–49");
    await tab.frame.locator(".verdict .live").waitFor();
    await live.append();
    await expect.poll(() => range.textContent(), { timeout: 20_000 }).toBe("steps 0–99");

    // Zoomed in at the right edge, the view follows; elsewhere it stays.
    await tab.page.evaluate(() => {
      location.hash = "#nanwatch&p.nanwatch.run=live&p.nanwatch.steps=80~100";
    });
    await expect.poll(() => range.textContent()).toBe("steps 80–99");
    await live.append();
    await expect.poll(() => range.textContent(), { timeout: 20_000 }).toBe("steps 130–149");
    await tab.page.evaluate(() => {
      location.hash = "#nanwatch&p.nanwatch.run=live&p.nanwatch.steps=10~30";
    });
    await expect.poll(() => range.textContent()).toBe("steps 10–29");
    await live.append();
    await expect.poll(() => tab.frame.locator(".facts").textContent(), { timeout: 20_000 }).toContain("Steps200");
    expect(await range.textContent()).toBe("steps 10–29");
  });

  test("keeps what it shows while the server is away, says so, and comes back", async () => {
    tab = await Tab.open(browser, board.url);
    await tab.painted();
    const port = board.port;
    await board.stop();
    await tab.frame.getByText("TensorBoard does not answer").waitFor({ timeout: 20_000 });
    expect(await tab.headline.textContent()).not.toBe("");
    tab.problems.length = 0; // the browser reports each refused connection
    board = await TensorBoard.start(logdir, [], "", port);
    await expect.poll(() => tab.frame.getByText("TensorBoard does not answer").count(), { timeout: 40_000 }).toBe(0);
    tab.problems.length = 0;
  });
});
