// What Optimization Report shows in the node.

import { createBox, createElement } from "./elements.js";
import { words } from "./words.js";

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
