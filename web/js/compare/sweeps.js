// What Benchmark Sweep shows in the node: its cells as they are measured.

import { app } from "../frontend/comfy.js";
import { createBox, createElement } from "../frontend/elements.js";
import { number } from "../badges/headlines.js";
import { words } from "../frontend/language.js";

/** @type {string | null} the last preset that the menus know of */
let known = null;

/**
 * @param {Sweep} sweep
 * @returns {HTMLElement[]} what the node shows
 */
export function sweepParts({ dashboard, total, preset, cells }) {
  if (preset && preset !== known) void app.refreshComboInNodes?.(); // so that menus show it
  known = preset ?? known;
  const heads = ["", words("speedup"), words("difference")].map((name) => createElement("th", { scope: "col" }, name));
  const rows = [...cells].sort((one, other) => (other.speedup ?? 0) - (one.speedup ?? 0)).map(rowOf);
  const head = createElement("thead", {}, createElement("tr", {}, ...heads));
  const table = createElement("table", {}, head, createElement("tbody", {}, ...rows));
  const done = createElement("output", {}, `${cells.length} / ${total} ${words("cells")}`);
  return [done, table, createBox("", `${words("plots")} `, createElement("code", {}, dashboard))];
}

/** @param {SweepCell} cell */
function rowOf({ label, state, speedup, low, high, difference, text }) {
  const interval = low && high !== null ? ` (${number(low, ".2f")} – ${number(high, ".2f")})` : "";
  const values = [speedup === null ? state : `${number(speedup, ".2f")}x${interval}`, difference === null ? "–" : number(difference, ".3f")];
  const row = createElement("tr", { title: text }, createElement("th", { scope: "row" }, label));
  row.append(...values.map((value) => createElement("td", {}, value)));
  return row;
}
