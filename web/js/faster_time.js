// Where the time of a picture goes, and what can be done about each part: one bar, and a row for each part below it.

import { createApart, createBox, createElement } from "./elements.js";
import { number, said } from "./said.js";
import { wordsOf } from "./words.js";

/** @typedef {import("./payloads").PictureTime} PictureTime */

/**
 * @param {PictureTime} time
 * @returns {HTMLElement}
 */
export function createPictureTime({ sentence, parts }) {
  const total = parts.reduce((sum, { seconds }) => sum + seconds, 0) || 1;
  const bar = createBox("paceline-bar-pieces");
  bar.setAttribute("aria-hidden", "true"); // the rows say it
  const rows = parts.map(({ kind, name, seconds, remedy }) => {
    const piece = createElement("span");
    piece.dataset.kind = kind;
    piece.style.flexGrow = String(seconds / total);
    bar.append(piece);
    const title = createElement("th", { scope: "row" }, createApart(wordsOf(kind)), ...(name ? [": ", createApart(name)] : []));
    title.dataset.kind = kind;
    const share = `${number(seconds, ".2g")} s · ${Math.round((100 * seconds) / total)} %`;
    return createElement("tr", {}, title, createElement("td", { dir: "ltr" }, share), createElement("td", {}, said(remedy.text, remedy.phrase)));
  });
  const table = createElement("table", {}, createElement("tbody", {}, ...rows));
  return createBox("paceline-picture-time", createElement("p", {}, said(sentence.text, sentence.phrase)), bar, table);
}
