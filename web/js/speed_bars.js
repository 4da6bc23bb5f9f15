// Bars of parts that are wide as they took long, with their names below.

import { number } from "./said.js";
import { direction, wordsOf } from "./words.js";

/** @typedef {{kind: string, seconds: number, marks?: number[]}} Piece seconds, and where in it something ended (0 to 1) */

/**
 * @param {string} title
 * @param {Piece[]} pieces
 * @param {string[]} notes below them
 * @returns {HTMLElement}
 */
export function createBar(title, pieces, notes = []) {
  const total = pieces.reduce((sum, { seconds }) => sum + seconds, 0);
  const figure = Object.assign(document.createElement("figure"), { className: "paceline-bar", dir: direction() });
  const caption = Object.assign(document.createElement("figcaption"), { textContent: `${title}: ${secondsText(total)}` });
  const bar = Object.assign(document.createElement("div"), { className: "paceline-bar-pieces" });
  const names = Object.assign(document.createElement("ul"), { className: "paceline-bar-names" });
  const seen = (/** @type {number} */ seconds) => total > 0 && seconds / total >= 0.002;
  const textOf = (/** @type {string} */ kind, /** @type {number} */ seconds) =>
    `${wordsOf(kind)} ${secondsText(seconds)} (${Math.round((100 * seconds) / total)} %)`;
  /** @type {Map<string, number>} seconds of each kind, over all its pieces */
  const kinds = new Map();
  for (const { kind, seconds, marks } of pieces) {
    kinds.set(kind, (kinds.get(kind) ?? 0) + seconds);
    if (!seen(seconds)) continue;
    const piece = Object.assign(document.createElement("span"), { title: textOf(kind, seconds) });
    piece.dataset.kind = kind;
    piece.style.flexGrow = String(seconds / total);
    for (const mark of marks ?? []) {
      const line = document.createElement("i");
      line.style.insetInlineStart = `${100 * mark}%`;
      piece.append(line);
    }
    bar.append(piece);
  }
  for (const [kind, seconds] of kinds) {
    if (!seen(seconds)) continue;
    const name = Object.assign(document.createElement("li"), { textContent: textOf(kind, seconds) });
    name.dataset.kind = kind;
    names.append(name);
  }
  figure.append(caption, bar, names, ...notes.map((textContent) => Object.assign(document.createElement("p"), { textContent })));
  return figure;
}

/**
 * @param {number} seconds
 * @returns {string}
 */
function secondsText(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  return seconds < 100 ? `${number(seconds, "#.3g")} s` : `${Math.round(seconds)} s`;
}
