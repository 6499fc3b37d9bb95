/** Entry of the tab: TensorBoard imports this module into its frame and calls `render`. */
import { h, render as mount } from "preact";
import uplotStyle from "uplot/dist/uPlot.min.css?inline";
import { App } from "./view/app";
import { start } from "./view/session";
import style from "./view/style.css?inline";

export function render(): void {
  // There is no HTML of our own to link a style sheet from.
  const sheet = document.createElement("style");
  sheet.textContent = uplotStyle + style;
  document.head.append(sheet);
  document.title = "NanWatch";
  document.documentElement.lang = "en";
  start();
  const root = document.createElement("div");
  document.body.append(root);
  mount(h(App, {}), root);
}
