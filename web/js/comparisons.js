// What Compare Models shows in the node: both pictures with a slider, the verdict, two charts.

import { api } from "./comfy.js";
import { createChart } from "./chart.js";
import { createSlider } from "./slider.js";
import { words } from "./words.js";

/**
 * @param {import("./payloads").SavedImage} image
 * @returns {string} its address
 */
function address(image) {
  const query = new URLSearchParams({ ...image });
  return api.apiURL(`/view?${query}`);
}

/**
 * @param {import("./payloads").Comparison} comparison
 * @returns {HTMLElement[]} what the node shows
 */
export function comparisonParts(comparison) {
  const { verdict, state, speedup_of, seconds, difference, noise_floor, pictures } = comparison;
  const judgement = Object.assign(document.createElement("p"), { className: "paceline-verdict", textContent: verdict });
  judgement.dataset.state = state;
  const sliders = pictures.baseline.flatMap((image, index) => {
    const other = pictures.optimized[index];
    return other ? [createSlider(address(image), address(other))] : [];
  });
  const distances = { optimized: difference, ...noise_floor };
  return [
    ...sliders,
    judgement,
    createChart(`${words("seconds")} (${speedup_of})`, bars(seconds)),
    createChart(words("difference"), bars(distances)),
  ];
}

/**
 * @param {Record<string, number>} values
 * @returns {Parameters<typeof createChart>[1]}
 */
function bars(values) {
  return Object.entries(values).map(([side, value]) => ({ label: sideWords(side), value }));
}

/**
 * @param {string} side
 * @returns {string}
 */
function sideWords(side) {
  if (side === "baseline" || side === "optimized") return words(side);
  return side.replaceAll("_", " ");
}
