// A chip's comparison with runs without our nodes, and what chance alone would do to it.

import { number } from "./said.js";
import { words } from "./words.js";

/** As many are of one run, which cannot tell how much one run differs from the next. */
export const OF_ONE_RUN = 2;

/** Student's t for 95 %, by degrees of freedom. */
const STUDENT = [NaN, 12.71, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26];

/**
 * @param {number[]} off seconds of a step without our nodes, in each half of the runs that are remembered; 1 to 10
 * @param {number} seconds of a step now
 * @returns {string} e.g. "1.62x against off"; "about 1.6x against off" with one run to compare with; between which two
 *   numbers it is, "0.87–1.12x against off", where one more run without our nodes could be as fast
 */
export function againstText(off, seconds) {
  const { mean, spread } = compare(off, seconds);
  const ratio = (/** @type {number} */ log, form = ".2f") => number(Math.exp(log), form);
  const against = words("againstOff");
  if (spread === null) return `${words("about")} ${ratio(mean, "#.2g")}x ${against}`;
  if (Math.abs(mean) > spread) return `${ratio(mean)}x ${against}`;
  return `${ratio(mean - spread)}–${ratio(mean + spread)}x ${against}`;
}

/**
 * @param {number[]} off as above
 * @param {number} seconds of a step now
 * @param {number} once seconds that compiling took
 * @param {number} steps of a run
 * @returns {string} from how many runs on compiling was worth it; "" where one more run without could be as fast
 */
export function wonBackText(off, seconds, once, steps) {
  if (!off.length) return "";
  const { mean, spread } = compare(off, seconds);
  if (mean <= (spread ?? 0)) return "";
  const runs = Math.ceil(once / (steps * seconds * (Math.exp(mean) - 1)));
  return words("wonBack").replace("%s", number(once, ".0f")).replace("%n", `${spread === null ? "~" : ""}${runs}`);
}

/**
 * @param {number[]} off as above
 * @param {number} seconds of a step now
 * @returns {{mean: number, spread: number | null}} logarithms: how many times as fast, and within what of it one more
 *   run without our nodes would be; null where one run cannot tell
 */
function compare(off, seconds) {
  const logs = off.map((time) => Math.log(time / seconds)); // a busy machine slows a step by a share of its time
  const mean = logs.reduce((sum, log) => sum + log, 0) / logs.length;
  if (logs.length <= OF_ONE_RUN) return { mean, spread: null };
  const squares = logs.reduce((sum, log) => sum + (log - mean) ** 2, 0);
  const free = logs.length - 1;
  return { mean, spread: STUDENT[free] * Math.sqrt((squares / free) * (1 + 1 / logs.length)) }; // of one more value
}
