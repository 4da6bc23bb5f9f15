// How long a sweep takes, from what its cells took before.

import { words } from "./words.js";

/**
 * @param {import("./graph.js").LGraphNode} node Benchmark Sweep
 * @param {number} cells
 * @param {number} secondsPerStep of both sides together
 * @returns {number} seconds
 */
export function wholeTime(node, cells, secondsPerStep) {
  const value = (/** @type {string} */ name) => Number(node.widgets?.find((one) => one.name === name)?.value ?? 1);
  return cells * secondsPerStep * value("steps") * (value("runs") + Math.max(1, value("warmup_runs")));
}

/**
 * @param {number} seconds
 * @returns {string} e.g. "about 4 min"
 */
export function timeText(seconds) {
  const [size, unit] = seconds < 90 ? [1, "s"] : seconds < 5400 ? [60, "min"] : [3600, "h"];
  return `${words("about")} ${Math.max(1, Math.round(seconds / size))} ${unit}`;
}
