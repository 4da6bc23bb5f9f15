// How long a sweep takes, from what its cells took before.

import { executionIdOf } from "./graph.js";
import { openPrompt } from "./prompt.js";
import { number } from "./said.js";
import { describe, SpeedHistory } from "./speed_history.js";
import { words } from "./words.js";

/** What a sampler and Benchmark Sweep have in common, as far as it changes how long a step takes. */
const SHARED = ["model", "positive", "negative", "latent_image", "cfg", "sampler_name", "scheduler"];

/** Rounds after which most cells are clear: with fewer pictures nothing good is said of a difference. */
const CLEAR = 5;

/**
 * @param {LGraphNode} node Benchmark Sweep, before its first cell
 * @returns {Promise<number | null>} seconds of a step of both sides together, if this machine has sampled the same with a
 *   KSampler before; null if it has not
 */
export async function expectedPerStep(node) {
  const prompt = await openPrompt();
  const inputs = Object.entries(prompt[executionIdOf(node) ?? ""]?.inputs ?? {}).filter(([name]) => SHARED.includes(name));
  const sampler = { class_type: "KSampler", inputs: Object.fromEntries(inputs) };
  const seconds = await new SpeedHistory().of(describe({ ...prompt, sampler }, "sampler").key);
  return seconds === null ? null : 2 * seconds;
}

/**
 * @param {LGraphNode} node Benchmark Sweep
 * @param {number} cells
 * @param {number} secondsPerStep of both sides together
 * @returns {number} seconds
 */
export function wholeTime(node, cells, secondsPerStep) {
  const value = (/** @type {string} */ name) => Number(node.widgets?.find((one) => one.name === name)?.value ?? 1);
  const rounds = Math.max(value("runs"), Math.min(value("most_runs"), CLEAR));
  return cells * secondsPerStep * value("steps") * (rounds + Math.max(1, value("warmup_runs")));
}

/**
 * @param {number} seconds
 * @returns {string} e.g. "about 4 min"
 */
export function timeText(seconds) {
  const [size, unit] = seconds < 90 ? [1, "s"] : seconds < 5400 ? [60, "min"] : [3600, "h"];
  return `${words("about")} ${number(Math.max(1, Math.round(seconds / size)))} ${unit}`;
}
