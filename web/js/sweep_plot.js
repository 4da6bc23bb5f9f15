// The plot of a sweep: speed against difference, with the interval of each cell, the plain model, what is allowed, and for
// the best trades the plain model with fewer steps in the same time.

import { number } from "./said.js";
import { words } from "./words.js";

const NAMESPACE = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [360, 234];
const AREA = { left: 40, top: 24, right: WIDTH - 12, bottom: HEIGHT - 48 };

/** About the width of a letter. */
const LETTER = 5.2;

/**
 * @param {Sweep} sweep
 * @param {(cell: SweepCell) => void} look called when the pointer or the focus is on a cell
 * @param {(cell: SweepCell) => void} choose called when it is clicked
 */
export function createPlot({ cells, limit }, look, choose) {
  const measured = cells.filter((cell) => cell.speedup !== null && cell.difference !== null);
  const ends = measured.flatMap(({ speedup, low, high }) => [speedup ?? 1, low ?? 1, high ?? 1]);
  const controls = measured.map(({ best, control }) => (best ? control : null));
  const shares = [...measured.map(({ difference }) => difference), ...controls].map((share) => share ?? 0);
  const across = scale([0, limit, ...shares], AREA.left, AREA.right);
  const upward = scale([1, ...ends], AREA.bottom, AREA.top);
  const plot = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "paceline-plot", role: "group" });
  plot.ariaLabel = words("plot");
  for (const { value, place } of across.ticks) text(plot, place, AREA.bottom + 14, short(value), "middle");
  for (const { value, place } of upward.ticks) {
    line(plot, [AREA.left, place, AREA.right, place], "grid");
    text(plot, AREA.left - 5, place + 4, `${short(value)}x`, "end");
  }
  line(plot, [AREA.left, upward.at(1), AREA.right, upward.at(1)], "one");
  text(plot, AREA.right, upward.at(1) - 4, words("plainModel"), "end");
  line(plot, [across.at(limit), AREA.top - 20, across.at(limit), AREA.bottom], "limit");
  const [side, anchor] = across.at(limit) < (AREA.left + AREA.right) / 2 ? [4, "start"] : [-4, "end"];
  const allowed = `${words("allowed")} ${short(limit)}`;
  text(plot, across.at(limit) + side, AREA.top - 12, allowed, /** @type {"start" | "end"} */ (anchor));
  text(plot, (AREA.left + AREA.right) / 2, HEIGHT - 18, words("seedShare"), "middle");
  if (controls.some((share) => share !== null)) {
    text(plot, (AREA.left + AREA.right) / 2, HEIGHT - 4, words("fewerSteps"), "middle");
  }
  for (const cell of measured) {
    const [x, y] = [across.at(cell.difference ?? 0), upward.at(cell.speedup ?? 1)];
    const point = svg("g", { class: "paceline-point", tabindex: "0", role: "button" });
    point.dataset.best = String(cell.best);
    point.ariaLabel = describe(cell);
    if (cell.low !== null && cell.high !== null) line(point, [x, upward.at(cell.low), x, upward.at(cell.high)], "bar");
    if (cell.best && cell.control !== null) {
      line(point, [x, y, across.at(cell.control), y], "bar");
      point.append(svg("circle", { cx: across.at(cell.control), cy: y, r: 4, class: "paceline-plot-ring" }));
    }
    point.append(svg("circle", { cx: x, cy: y, r: cell.best ? 6 : 4.5 }));
    if (cell.best) {
      const left = x < (AREA.left + AREA.right) / 2;
      const room = Math.floor((left ? WIDTH - x - 10 : x - 10) / LETTER); // all of it is said below, at a look
      const label = cell.label.length > room ? `${cell.label.slice(0, room - 1)}…` : cell.label;
      text(plot, left ? x + 10 : x - 10, y - 6, label, left ? "start" : "end");
    }
    for (const event of ["pointerenter", "focus"]) point.addEventListener(event, () => look(cell));
    point.addEventListener("click", () => choose(cell));
    point.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation(); // the canvas has shortcuts for both
      choose(cell);
    });
    plot.append(point);
  }
  return plot;
}

/**
 * @param {SweepCell} cell
 * @returns {string} e.g. "1.42x (1.31 – 1.53), preset fast"
 */
export function describe({ label, speedup, low, high, state }) {
  if (speedup === null) return `${state}, ${label}`;
  const interval = low !== null && high !== null ? ` (${number(low, ".2f")} – ${number(high, ".2f")})` : "";
  return `${number(speedup, ".2f")}x${interval}, ${label}`;
}

/**
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string | number>} attributes
 */
function svg(tag, attributes) {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

/**
 * @param {SVGElement} parent
 * @param {number[]} ends
 * @param {string} name
 */
function line(parent, [x1, y1, x2, y2], name) {
  parent.append(svg("line", { x1, y1, x2, y2, class: `paceline-plot-${name}` }));
}

/**
 * @param {SVGElement} parent
 * @param {number} x
 * @param {number} y
 * @param {string} content
 * @param {"start" | "middle" | "end"} anchor
 */
function text(parent, x, y, content, anchor) {
  const element = svg("text", { x, y, "text-anchor": anchor });
  element.textContent = content;
  parent.append(element);
}

/**
 * @param {number[]} values
 * @param {number} start place of the smallest
 * @param {number} end place of the largest
 */
function scale(values, start, end) {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const wanted = (most - least) / 5 || 0.1;
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= wanted * 0.999) ?? 10);
  const low = Math.floor(least / step + 1e-9) * step;
  const high = Math.max(Math.ceil(most / step - 1e-9) * step, low + step);
  const at = (/** @type {number} */ value) => start + ((value - low) / (high - low)) * (end - start);
  const count = Math.round((high - low) / step);
  const ticks = Array.from({ length: count + 1 }, (_, index) => low + index * step);
  return { at, ticks: ticks.map((value) => ({ value, place: at(value) })) };
}

/** @param {number} value */
function short(value) {
  return number(value, ".3g");
}
