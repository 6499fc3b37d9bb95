import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

/** What each floor may import besides itself; main.ts stands on top of all. */
const BELOW: Readonly<Record<string, readonly string[]>> = {
  model: [],
  net: ["model"],
  chart: ["model"],
  view: ["model", "net", "chart"],
};

for (const [floor, allowed] of Object.entries(BELOW)) {
  test(`${floor} imports only ${["itself", ...allowed].join(", ")}`, () => {
    const folder = join(import.meta.dirname, floor);
    const files = readdirSync(folder).filter((name) => /\.tsx?$/.test(name) && !name.includes(".test."));
    expect(files.length).toBeGreaterThan(2);
    for (const name of files) {
      const source = readFileSync(join(folder, name), "utf8");
      for (const [, target = ""] of source.matchAll(/from "\.\.\/([^/"]+)/g)) expect(allowed, `${floor}/${name}`).toContain(target);
    }
  });
}

test("the model touches no document", () => {
  const folder = join(import.meta.dirname, "model");
  for (const name of readdirSync(folder)) expect(readFileSync(join(folder, name), "utf8"), name).not.toMatch(/\bdocument\.|\bwindow\.(?!from\b|to\b)/);
});
