// Bars of parts that are wide as they took long, with their names below.

import { createApart, createBox, createElement } from "../frontend/elements.js";
import { number } from "../badges/headlines.js";
import { direction, words, wordsOf } from "../frontend/language.js";

/** @typedef {{kind: string, seconds: number, marks?: number[]}} Piece seconds, and where in it something ended (0 to 1) */

/**
 * @param {string} title
 * @param {Piece[]} pieces
 * @param {string[]} notes below them
 */
export function createBar(title, pieces, notes = []) {
  const total = pieces.reduce((sum, { seconds }) => sum + seconds, 0);
  const caption = createElement("figcaption", {}, createApart(title), ": ", createApart(secondsText(total)));
  const bar = createBox("paceline-bar-pieces");
  const names = createElement("ul", { className: "paceline-bar-names" });
  const seen = (/** @type {number} */ seconds) => total > 0 && seconds / total >= 0.002;
  const said = (/** @type {string} */ kind, /** @type {number} */ seconds) => {
    const share = `(${Math.round((100 * seconds) / total)} %)`;
    return [createApart(wordsOf(kind)), " ", createApart(`${secondsText(seconds)} ${share}`)];
  };
  /** @type {Map<string, number>} seconds of each kind, over all its pieces */
  const kinds = new Map();
  for (const { kind, seconds, marks = [] } of pieces) {
    kinds.set(kind, (kinds.get(kind) ?? 0) + seconds);
    if (!seen(seconds)) continue;
    const lines = marks.map(() => createElement("i"));
    lines.forEach((line, at) => (line.style.insetInlineStart = `${100 * marks[at]}%`));
    const piece = createElement("span", { title: createElement("p", {}, ...said(kind, seconds)).textContent ?? "" }, ...lines);
    piece.dataset.kind = kind;
    piece.style.flexGrow = String(seconds / total);
    bar.append(piece);
  }
  for (const [kind, seconds] of kinds) {
    if (!seen(seconds)) continue;
    const name = createElement("li", {}, ...said(kind, seconds));
    name.dataset.kind = kind;
    names.append(name);
  }
  const below = notes.map((textContent) => createElement("p", { textContent }));
  return createElement("figure", { className: "paceline-bar", dir: direction() }, caption, bar, names, ...below);
}

/** @param {number} seconds */
function secondsText(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  return seconds < 100 ? `${number(seconds, "#.3g")} s` : `${Math.round(seconds)} s`;
}

/** @param {Profile} profile */
export function profileParts({ loading, steps, decoding, slices, weights, about }) {
  const sampling = steps.reduce((sum, seconds) => sum + seconds, 0);
  let at = 0;
  const marks = steps.slice(0, -1).map((seconds) => (at += seconds) / sampling);
  const pieces = [
    { kind: "loading", seconds: loading },
    { kind: "samplingRun", seconds: sampling, marks },
    ...(decoding === null ? [] : [{ kind: "decoding", seconds: decoding }]),
  ];
  const parts = Object.entries(slices).map(([kind, seconds]) => ({ kind, seconds }));
  parts.sort((a, b) => b.seconds - a.seconds);
  const list = createElement("ul", { className: "paceline-weights" }, ...weights.map((line) => createElement("li", {}, line)));
  const { model, device, torch, comfyui } = about;
  const small = createElement("small", {}, `${model} · ${device} · torch ${torch} · ComfyUI ${comfyui}`);
  return [createBar(words("wholeRun"), pieces), createBar(words("step"), parts), list, small];
}
