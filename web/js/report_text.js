// What Optimization Report shows in the node.

import { said } from "./said.js";
import { direction, words } from "./words.js";

/** @typedef {{text: string, phrase?: import("./payloads").Phrase}} Report several lines, and the same as data */

/**
 * @param {Report} report
 * @returns {HTMLElement[]} what the node shows
 */
export function reportParts(report) {
  const text = Object.assign(document.createElement("pre"), { className: "paceline-report-text", dir: direction() });
  text.textContent = said(report.text, report.phrase);
  // It scrolls, so the keyboard must get there, and a screen reader say what it is.
  text.tabIndex = 0;
  text.role = "region";
  text.ariaLabel = words("reportTitle");
  return [text];
}
