// What Optimization Report shows in the node.

import { said } from "./said.js";
import { direction, words } from "./words.js";

/** @typedef {{text: string, phrase?: import("./payloads").Phrase}} Report several lines, and the same as data */

/**
 * @param {Report} report
 * @returns {HTMLElement[]} what the node shows
 */
export function reportParts(report) {
  const text = Object.assign(document.createElement("div"), { className: "paceline-report-text", dir: direction() });
  text.append(...said(report.text, report.phrase).split("\n").flatMap((line) => (line.trim() ? [lineElement(line)] : [])));
  // It scrolls, so the keyboard must get there, and a screen reader say what it is.
  text.tabIndex = 0;
  text.role = "region";
  text.ariaLabel = words("reportTitle");
  return [text];
}

/**
 * @param {string} line with two blanks for each level: of what is reported, what is said of it, details
 * @returns {HTMLElement}
 */
function lineElement(line) {
  const textContent = line.trimStart();
  const element = Object.assign(document.createElement("div"), { textContent });
  element.dataset.level = String((line.length - textContent.length) / 2);
  return element;
}
