// What Benchmark Sweep shows in the node: its cells as they are measured, each of which can be saved as a preset.

import { app, attempt, tell } from "./comfy.js";
import { createBox, createButton, createElement } from "./elements.js";
import { number } from "./said.js";
import { ask } from "./server.js";
import { words } from "./words.js";

/** Served by server/routes.py. */
const PRESETS = "/paceline/presets";

/** @type {string | null} the last preset that the menus know of */
let known = null;

/**
 * @param {Sweep} sweep
 * @returns {HTMLElement[]} what the node shows
 */
export function sweepParts({ study, dashboard, total, preset, cells }) {
  if (preset && preset !== known) void refreshMenus(preset);
  const heads = ["", words("speedup"), words("difference"), ""].map((name) => createElement("th", { scope: "col" }, name));
  const fastest = [...cells].sort((one, other) => (other.speedup ?? 0) - (one.speedup ?? 0));
  const rows = fastest.map((cell) => rowOf(cell, study));
  const head = createElement("thead", {}, createElement("tr", {}, ...heads));
  const table = createElement("table", {}, head, createElement("tbody", {}, ...rows));
  const done = createElement("output", {}, `${cells.length} / ${total} ${words("cells")}`);
  return [done, table, createBox("", `${words("plots")} `, createElement("code", {}, dashboard))];
}

/**
 * @param {SweepCell} cell
 * @param {string} study
 */
function rowOf({ label, state, speedup, low, high, difference, text, steps }, study) {
  const interval = low && high !== null ? ` (${number(low, ".2f")} – ${number(high, ".2f")})` : "";
  const values = [
    speedup === null ? state : `${number(speedup, ".2f")}x${interval}`,
    difference === null ? "–" : number(difference, ".3f"),
    ...(steps.length ? [createButton(words("savePreset"), () => void save(presetName(study, label), steps, text))] : [""]),
  ];
  const row = createElement("tr", { title: text }, createElement("th", { scope: "row" }, label));
  row.append(...values.map((value) => createElement("td", {}, value)));
  return row;
}

/**
 * @param {string} name
 * @param {Step[]} steps
 * @param {string} description
 */
function save(name, steps, description) {
  return attempt(async () => {
    await ask(PRESETS, { name, steps, description });
    await refreshMenus(name);
    tell("success", `${words("presetSaved")} ${name}`);
  });
}

const MOST_LETTERS = 80;

/**
 * @param {string} study
 * @param {string} label of the cell, by which it differs from others of the study
 * @returns {string} what `PRESET_NAME` in workbench/recipe.py allows; of what is too long the study is cut
 */
export function presetName(study, label) {
  const [first, last] = [study, ` - ${label}`].map((text) => [...text.replace(/[^\p{L}\p{N}_ .()+-]/gu, " ")]);
  const name = [...first.slice(0, Math.max(1, MOST_LETTERS - last.length)), ...last];
  return name.slice(0, MOST_LETTERS).join("").trim();
}

/**
 * Let the menus show a new preset.
 * @param {string} name
 */
async function refreshMenus(name) {
  known = name;
  await app.refreshComboInNodes?.();
}
