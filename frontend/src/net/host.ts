/**
 * What the page around the frame tells and takes: TensorBoard's dark mode, its reload button and its address bar.
 * Outside TensorBoard, or where the parent may not be touched, the frame's own hash and the system's colours serve.
 */

import type { Theme } from "../model/types";

/** The window around the frame, if there is one and it lets us look. */
function host(): Window | undefined {
  try {
    return window.parent !== window && window.parent.document.body !== null ? window.parent : undefined;
  } catch {
    return undefined;
  }
}

export function watchTheme(changed: (theme: Theme) => void): void {
  const outer = host();
  if (outer !== undefined) {
    const body = outer.document.body;
    const tell = (): void => changed(body.classList.contains("dark-mode") ? "dark" : "light");
    new MutationObserver(tell).observe(body, { attributes: true, attributeFilter: ["class"] });
    tell();
    return;
  }
  const query = window.matchMedia("(prefers-color-scheme: dark)");
  const tell = (): void => changed(query.matches ? "dark" : "light");
  query.addEventListener("change", tell);
  tell();
}

const PLUGIN = "nanwatch";

export function readLink(): string {
  return (host() ?? window).location.hash;
}

/** Replaces the hash without a new entry in the history. Leaves it alone while another tab is shown. */
export function writeLink(rewrite: (hash: string) => string): void {
  const target = host() ?? window;
  const hash = target.location.hash;
  const bare = hash.replace(/^#/, "");
  const tab = bare.split("&")[0] ?? "";
  if (target !== window && (window.innerHeight === 0 || (tab !== "" && tab !== PLUGIN))) return;
  const next = rewrite(target !== window && tab === "" ? `#${PLUGIN}` : hash);
  if (next !== hash && next !== "#") target.history.replaceState(target.history.state, "", next);
}

export function watchLink(changed: (hash: string) => void): void {
  const target = host() ?? window;
  target.addEventListener("hashchange", () => changed(target.location.hash));
}

/** Calls back when TensorBoard's own reload ran. The host answers on a channel that the frame offers it. */
export function watchReload(reloaded: () => void): void {
  if (host() === undefined) return;
  const channel = new MessageChannel();
  channel.port1.onmessage = (event: MessageEvent<unknown>): void => {
    if (typeof event.data === "string" && event.data.includes("experimental.DataReloaded")) reloaded();
  };
  window.parent.postMessage("experimental.bootstrap", window.location.origin, [channel.port2]);
}

export function hidden(): boolean {
  return window.innerHeight === 0 || document.visibilityState === "hidden";
}
