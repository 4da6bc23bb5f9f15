// Every round of a measurement as a dot, with the median, and for the speed-up its interval and the line at 1x.

import { createBox, createElement } from "../frontend/elements.js";
import { number } from "../badges/headlines.js";
import { words, wordsOf } from "../frontend/language.js";

/** @param {Comparison} comparison */
export function createRounds({ seconds, speedup, speedup_low, speedup_high, speedup_of }) {
  const { baseline, ...others } = seconds;
  const sides = Object.entries({ baseline, ...others });
  const slowest = Math.max(...sides.flatMap(([, values]) => values));
  const rows = sides.map(([side, values]) => {
    const middle = median(values);
    return row({ label: sideWords(side), values, middle, text: `${short(middle)} s` }, 0, slowest * 1.05);
  });
  const ratios = baseline.map((value, round) => value / seconds.optimized[round]);
  /** @type {[number, number] | null} */
  const interval = speedup_low !== null && speedup_high !== null ? [speedup_low, speedup_high] : null;
  const all = [...ratios, ...(interval ?? []), 1];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const room = 0.06 * (high - low || 1);
  const text = `${number(speedup, ".2f")}x`;
  rows.push(row({ label: words("speedup"), values: ratios, middle: speedup, text, interval, line: 1 }, low - room, high + room));
  const caption = createElement("figcaption", {}, `${wordsOf(speedup_of)}: ${words("eachRound")}`);
  return createElement("figure", { className: "paceline-rounds" }, caption, ...rows);
}

/**
 * @param {{label: string, values: number[], middle: number, text: string, interval?: [number, number] | null, line?: number}} row
 *   the values of all rounds with their median, and a value that is marked
 * @param {number} low left end of the scale
 * @param {number} high right end
 */
function row({ label, values, middle, text, interval, line }, low, high) {
  const track = createElement("div", { className: "paceline-rounds-track", role: "img" });
  const place = (/** @type {number} */ value) => `${(100 * (value - low)) / (high - low)}%`;
  /** @type {(name: string, from: number, to?: number) => void} */
  const mark = (name, from, to) => {
    const found = createElement("span", { className: `paceline-rounds-${name}` });
    found.style.insetInlineStart = place(from);
    if (to !== undefined) found.style.insetInlineEnd = `calc(100% - ${place(to)})`;
    track.append(found);
  };
  if (line !== undefined) mark("line", line);
  if (interval) mark("interval", ...interval);
  for (const value of values) mark("dot", value);
  mark("median", middle);
  const shown = interval ? `${text} (${interval.map((end) => number(end, ".2f")).join(" – ")})` : text;
  track.ariaLabel = `${label}: ${values.map(short).join(", ")}`;
  const value = createElement("span", { className: "paceline-number" }, shown);
  return createBox("paceline-rounds-row", createElement("span", {}, label), track, value);
}

/** @param {string} side */
export function sideWords(side) {
  return wordsOf(side).replaceAll("_", " ");
}

/** @param {number[]} values */
function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/** @param {number} value */
function short(value) {
  return number(value, value >= 100 ? ".0f" : "#.3g");
}
