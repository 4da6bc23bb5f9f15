// What Optimization Report shows in the node.

import { words } from "./words.js";

/**
 * @param {string} report several lines
 * @returns {HTMLElement[]} what the node shows
 */
export function reportParts(report) {
  const text = Object.assign(document.createElement("pre"), { className: "paceline-report-text", textContent: report });
  // It scrolls, so the keyboard must get there, and a screen reader say what it is.
  text.tabIndex = 0;
  text.role = "region";
  text.ariaLabel = words("reportTitle");
  return [text];
}
