// What Benchmark Sweep shows in the node: the plot as it grows, the cell that is looked at, and what to do with it.

import { addSteps } from "./add_steps.js";
import { app, tell } from "./comfy.js";
import { createBox, createButton, createElement } from "./elements.js";
import { address, ask } from "./server.js";
import { createPlot, describe } from "./sweep_plot.js";
import { timeText, wholeTime } from "./sweep_time.js";
import { words } from "./words.js";

/** Served by server/routes.py. */
const PRESETS = "/paceline/presets";

/** @type {string | null} the last preset that the menus know of */
let known = null;

/**
 * @param {Sweep} sweep
 * @param {LGraphNode} node
 * @returns {HTMLElement[]} what the node shows
 */
export function sweepParts(sweep, node) {
  if (sweep.preset && sweep.preset !== known) void refreshMenus(sweep.preset);
  const detail = createBox("paceline-cell");
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
 */
function statusOf({ cells, total, running, seconds_per_step }, node) {
  const left = total - cells.length;
  const seconds = seconds_per_step === null ? null : wholeTime(node, left, seconds_per_step);
  const time = left && seconds !== null ? ` · ${timeText(seconds)}` : "";
  const text = `${cells.length} / ${total} ${words(running || !left ? "cells" : "cellsKept")}${time}`;
  const resume = left && !running ? [createButton(words("resume"), () => void app.queuePrompt(0))] : [];
  return createBox("paceline-toolbar", createElement("output", {}, text), ...resume);
}

/**
 * @param {SweepCell} cell
 * @param {LGraphNode} node
 * @param {string} study
 */
function cellParts(cell, node, study) {
  const { label, picture, steps, text } = cell;
  const save = createButton(words("savePreset"), async () => {
    const name = presetName(study, label);
    try {
      await ask(PRESETS, { name, steps, description: text });
      await refreshMenus(name);
      tell("success", `${words("presetSaved")} ${name}`);
    } catch (error) {
      tell("error", String(/** @type {Error} */ (error).message));
    }
  });
  const buttons = steps.length ? [createButton(words("apply"), () => addSteps(node, steps)), save] : [];
  const bar = createBox("paceline-toolbar", ...buttons);
  const column = createElement("div", {}, createElement("strong", {}, describe(cell)), createElement("p", {}, text), bar);
  if (!picture) return [column];
  return [Object.assign(new Image(), { src: address(picture), alt: label, draggable: false }), column];
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
