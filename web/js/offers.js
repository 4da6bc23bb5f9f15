// What could be inserted: what is expected of it, or, looking otherwise, what was measured.

import { createBox, createElement } from "./elements.js";
import { said } from "./said.js";
import { address } from "./server.js";
import { words } from "./words.js";

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
  const guess = createElement("small", { className: "paceline-expected" }, `${said(expected.text, expected.phrase)}; ${said(about.text, about.phrase)}`);
  if (!measured) return [guess];
  const fact = createElement("small", { className: "paceline-measured" }, said(measured.text, measured.phrase));
  const shown = picture ? [createElement("img", { src: address(picture), alt: words("worstPicture"), title: words("worstPicture") })] : [];
  return [fact, guess, ...shown];
}
