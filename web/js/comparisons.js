// What Compare Models shows in the node: both pictures with a slider, the verdict, two charts.

import { api } from "./comfy.js";
import { createChart } from "./chart.js";
import { createSlider } from "./slider.js";
import { words } from "./words.js";

/** @typedef {{filename: string, subfolder: string, type: string}} SavedImage as ComfyUI's /view serves it */

/**
 * The part of `record` in optimizers/hosts/comfyui/comparison/words.py that is shown.
 * @typedef {object} Comparison
 * @property {string} verdict one line
 * @property {string} state of the verdict
 * @property {string} speedup_of what the seconds are of
 * @property {Record<string, number | null>} seconds `baseline`, `optimized`
 * @property {{rmse: number}} difference between the two
 * @property {Record<string, {rmse: number}>} noise_floor other differences, to hold it to
 * @property {Record<string, SavedImage[]>} files `baseline`, `optimized`
 */

/** How the verdicts are coloured. */
const COLOURS = { faster: "active", no_effect: "inactive", suspicious: "failed", broken: "failed" };

/**
 * @param {SavedImage} image
 * @returns {string} its address
 */
function address(image) {
  const query = new URLSearchParams({ ...image });
  return api.apiURL(`/view?${query}`);
}

/**
 * @param {Comparison} comparison
 * @returns {HTMLElement[]} what the node shows
 */
export function comparisonParts(comparison) {
  const { verdict, state, speedup_of, seconds, difference, noise_floor, files } = comparison;
  const judgement = Object.assign(document.createElement("p"), { className: "paceline-verdict", textContent: verdict });
  judgement.dataset.state = COLOURS[/** @type {keyof typeof COLOURS} */ (state)] ?? "partly";
  const sliders = (files?.baseline ?? []).flatMap((image, index) => {
    const other = files.optimized?.[index];
    return other ? [createSlider(address(image), address(other))] : [];
  });
  const times = Object.entries(seconds ?? {}).flatMap(([side, value]) =>
    typeof value === "number" ? [{ label: sideWords(side), value }] : [],
  );
  const distances = [{ label: words("optimized"), value: difference?.rmse ?? 0 }];
  for (const [name, { rmse }] of Object.entries(noise_floor ?? {})) distances.push({ label: sideWords(name), value: rmse });
  return [
    ...sliders,
    judgement,
    createChart(`${words("seconds")} (${speedup_of})`, times),
    createChart(words("difference"), distances),
  ];
}

/**
 * @param {string} side
 * @returns {string}
 */
function sideWords(side) {
  if (side === "baseline" || side === "optimized") return words(side);
  return side.replaceAll("_", " ");
}
