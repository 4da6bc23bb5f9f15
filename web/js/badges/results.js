// What a run leaves behind for a node to show in itself: a comparison, a report.

import { makeRoom } from "../frontend/comfy.js";
import { comparisonParts } from "../compare/comparisons.js";
import { createBox, createElement } from "../frontend/elements.js";
import { profileParts } from "../speed/speed_bars.js";
import { Shown } from "./in_nodes.js";
import { sweepParts } from "../compare/sweeps.js";
import { words } from "../frontend/language.js";

const MIN_WIDTH = 420;

/**
 * @template Value
 * @param {ActivityStore} store
 * @param {string} name of the widget and the class
 * @param {number} minHeight in pixels
 * @param {(entry: Entry) => Value | undefined} pick
 * @param {(result: Value, node: LGraphNode) => HTMLElement[]} parts what is shown
 */
function shownAs(store, name, minHeight, pick, parts) {
  const size = { margin: 8, getMinHeight: () => minHeight };
  const create = () => {
    const element = createBox(name);
    const show = (/** @type {Value} */ result, /** @type {LGraphNode} */ node) => element.replaceChildren(...parts(result, node));
    return { element, show, added: (/** @type {LGraphNode} */ node) => makeRoom(node, MIN_WIDTH) };
  };
  return new Shown(store, { widget: `$$${name}`, size, pick, create });
}

/** @param {ActivityStore} store */
export function createResults(store) {
  return [
    shownAs(store, "paceline-comparison", 450, (entry) => entry.comparison, comparisonParts),
    shownAs(store, "paceline-report", 90, (entry) => entry.report, reportParts),
    shownAs(store, "paceline-sweep", 160, (entry) => entry.sweep, sweepParts),
    shownAs(store, "paceline-profile", 260, (entry) => entry.profile, profileParts),
  ];
}

/**
 * @param {string} report several lines
 * @returns {HTMLElement[]} what the node shows
 */
export function reportParts(report) {
  const text = createBox("paceline-report-text", ...report.split("\n").filter((line) => line.trim()).map(lineElement));
  // It scrolls, so the keyboard must get there, and a screen reader say what it is.
  return [Object.assign(text, { tabIndex: 0, role: "region", ariaLabel: words("reportTitle") })];
}

/** @param {string} line with two blanks for each level: of what is reported, what is said of it, details */
function lineElement(line) {
  const element = createElement("div", {}, line.trimStart());
  element.dataset.level = String((line.length - line.trimStart().length) / 2);
  return element;
}
