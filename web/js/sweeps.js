// What Benchmark Sweep shows in the node: the plot as it grows, the cell that is looked at, and what to do with it.

import { addSteps } from "./add_steps.js";
import { app } from "./comfy.js";
import { createButton } from "./dialog.js";
import { address } from "./saved_image.js";
import { ask } from "./server.js";
import { createPlot, describe } from "./sweep_plot.js";
import { timeText, wholeTime } from "./sweep_time.js";
import { words } from "./words.js";

/** Served by server/routes.py. */
const PRESETS = "/paceline/presets";

/** @typedef {import("./graph.js").LGraphNode} LGraphNode */
/** @typedef {import("./payloads").Sweep} Sweep */
/** @typedef {import("./payloads").SweepCell} SweepCell */

/** @type {string | null} the last preset that the menus know of */
let known = null;

/**
 * @param {Sweep} sweep
 * @param {LGraphNode} node
 * @returns {HTMLElement[]} what the node shows
 */
export function sweepParts(sweep, node) {
  if (sweep.preset && sweep.preset !== known) refreshMenus((known = sweep.preset));
  const detail = Object.assign(document.createElement("div"), { className: "paceline-cell" });
  /** @type {SweepCell | null} */
  let chosen = null;
  const show = (/** @type {SweepCell} */ cell) => detail.replaceChildren(...cellParts(cell, node, sweep.study));
  const look = (/** @type {SweepCell} */ cell) => chosen ?? show(cell);
  const plot = createPlot(sweep, look, (cell) => show((chosen = cell)));
  const first = sweep.cells.filter((cell) => cell.best).at(-1) ?? sweep.cells.at(-1);
  if (first) show(first);
  return [statusOf(sweep, node), /** @type {any} */ (plot), detail]; // an element like the others, of another namespace
}

/**
 * @param {Sweep} sweep
 * @param {LGraphNode} node
 * @returns {HTMLElement}
 */
function statusOf({ cells, total, running, seconds_per_step }, node) {
  const row = Object.assign(document.createElement("div"), { className: "paceline-toolbar" });
  const left = total - cells.length;
  const seconds = seconds_per_step === null ? null : wholeTime(node, left, seconds_per_step);
  const time = left && seconds !== null ? ` · ${timeText(seconds)}` : "";
  const text = Object.assign(document.createElement("output"), {
    textContent: `${cells.length} / ${total} ${words(running || !left ? "cells" : "cellsKept")}${time}`,
  });
  row.append(text);
  if (left && !running) row.append(createButton(words("resume"), () => void app.queuePrompt(0)));
  return row;
}

/**
 * @param {SweepCell} cell
 * @param {LGraphNode} node
 * @param {string} study
 * @returns {HTMLElement[]}
 */
function cellParts(cell, node, study) {
  const { label, picture, steps, text } = cell;
  const column = document.createElement("div");
  const title = Object.assign(document.createElement("strong"), { textContent: describe(cell) });
  const note = Object.assign(document.createElement("p"), { textContent: text });
  const bar = Object.assign(document.createElement("div"), { className: "paceline-toolbar" });
  const save = createButton(words("savePreset"), async () => {
    const name = `${study} - ${label}`.replace(/[^\w .()+-]/g, " ").slice(0, 80).trim();
    try {
      await ask(PRESETS, { name, steps, description: text });
      await refreshMenus(name);
      app.extensionManager.toast.add({ severity: "success", summary: `${words("presetSaved")} ${name}`, life: 5000 });
    } catch (error) {
      app.extensionManager.toast.add({ severity: "error", summary: String(/** @type {Error} */ (error).message), life: 5000 });
    }
  });
  if (steps.length) bar.append(createButton(words("apply"), () => addSteps(node, steps)), save);
  column.append(title, note, bar);
  if (!picture) return [column];
  return [Object.assign(new Image(), { src: address(picture), alt: label, draggable: false }), column];
}

/**
 * Let the menus show a new preset.
 * @param {string} name
 */
async function refreshMenus(name) {
  known = name;
  await app.refreshComboInNodes();
}
