// The plugin's routes over synthetic runs, and a stand-in for TensorBoard's page around the frame:
//   npm run build && npm run dev [PORT]     then open http://localhost:6070/blowup/ (or huge, broken, empty, loading)
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { join, normalize } from "node:path";
import { cell, report, scenarios, series, summary, tables, tile } from "./synthetic.mjs";

const STATIC = fileURLToPath(new URL("../../tb_nanwatch/plugin/static/", import.meta.url));
const CSP = "default-src 'self';font-src 'self' data:;img-src 'self' data: blob:;object-src 'none';style-src 'self' 'unsafe-inline';connect-src 'self';script-src 'self'";

const HOST = `<!doctype html><title>host</title><style>body{margin:0;font:14px sans-serif;display:flex;flex-direction:column;height:100vh}header{background:#f57c00;color:#fff;padding:8px}body.dark-mode{background:#303030}iframe{flex:1;border:0}</style>
<body><header><button id=dark>dark</button></header><iframe src="data/plugin_entry.html"></iframe><script src="host.js"></script>`;
const ENTRY = `<!doctype html><head><base href="plugin/nanwatch/"></head><body><script type="module" src="entry.js"></script></body>`;

class Unknown extends Error {}

function find(scenario, query) {
  const run = scenario.runs.find((r) => r.name === query.get("run"));
  if (!run) throw new Unknown(`run: there is no run ${query.get("run")}`);
  return run;
}

function answer(scenario, route, query) {
  const number = (name, otherwise) => Number(query.get(name) ?? otherwise);
  switch (route) {
    case "runs":
      return { runs: scenario.runs.map(summary), reload_interval: 1, loading: scenario.loading ?? false, logdir: "logs", damage: scenario.damage };
    case "report":
      return report(find(scenario, query));
    case "tensors":
      return tables(find(scenario, query));
    case "tile":
      return tile(find(scenario, query), query.get("kind"), number("level"), number("tile"), query.get("rows").split(":").map(Number));
    case "series":
      return series(find(scenario, query), query.get("tag"), query.get("stat"), number("first", 0), number("last", 1e9), number("bins", 1024));
    case "cell":
      return cell(find(scenario, query), query.get("tag"), number("step"));
    default:
      throw new Unknown(`no route ${route}`);
  }
}

async function respond(url) {
  const [, name = "", ...rest] = url.pathname.split("/");
  const scenario = scenarios[name];
  const path = rest.join("/");
  if (!scenario) return [404, "text/plain", `no scenario ${name}; there are ${Object.keys(scenarios).join(", ")}`];
  if (path === "") return [200, "text/html", HOST];
  if (path === "host.js") return [200, "text/javascript", `document.getElementById("dark").onclick=()=>document.body.classList.toggle("dark-mode")`];
  if (path === "data/plugin_entry.html") return [200, "text/html", ENTRY];
  const route = path.replace("data/plugin/nanwatch/", "");
  if (route === "entry.js") return [200, "text/javascript", `import("./static/index.js").then((m) => m.render())`];
  if (route.startsWith("static/")) return [200, "text/javascript", await readFile(join(STATIC, normalize(route.slice(7))))];
  const body = answer(scenario, route, url.searchParams);
  return Buffer.isBuffer(body) ? [200, "application/octet-stream", body] : [200, "application/json", JSON.stringify(body)];
}

const port = Number(process.argv[2] ?? 6070);
createServer((request, response) => {
  respond(new URL(request.url ?? "/", "http://localhost"))
    .catch((error) => [error instanceof Unknown ? 404 : 500, "text/plain", String(error.message)])
    .then(([status, type, body]) => {
      response.writeHead(status, { "content-type": type, "cache-control": "no-cache", "content-security-policy": CSP });
      response.end(body);
    });
}).listen(port, "127.0.0.1", () => console.log(`http://localhost:${port}/ + ${Object.keys(scenarios).join(" | ")} + /`));
