// What the dialog shows: where the time of a picture goes and what can be done about each part, and what could be inserted.

import { createApart, createBox, createElement } from "./elements.js";
import { number, said } from "./said.js";
import { address } from "./server.js";
import { words, wordsOf } from "./words.js";

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
    return createElement("tr", {}, title, createElement("td", { dir: "ltr" }, share), createElement("td", {}, said(remedy)));
  });
  const table = createElement("table", {}, createElement("tbody", {}, ...rows));
  return createBox("paceline-picture-time", createElement("p", {}, said(sentence)), bar, table);
}

/** @typedef {import("./payloads").Offer} Offer */

/**
 * @param {Offer} offer
 * @returns {HTMLElement}
 */
export function createOffer(offer) {
  return createBox("paceline-offer", createElement("strong", {}, offer.label), ...findings(offer));
}

/**
 * @param {Offer} offer
 * @returns {HTMLElement[]}
 */
function findings({ expected, about, measured, picture }) {
  const guess = createElement("small", { className: "paceline-expected" }, `${said(expected)}; ${said(about)}`);
  if (!measured) return [guess];
  const fact = createElement("small", { className: "paceline-measured" }, said(measured));
  const shown = picture ? [createElement("img", { src: address(picture), alt: words("worstPicture"), title: words("worstPicture") })] : [];
  return [fact, guess, ...shown];
}
