// What could be inserted: what is expected of it, or, looking otherwise, what was measured.

import { createBox, createElement } from "./elements.js";
import { said } from "./said.js";
import { address } from "./server.js";
import { words } from "./words.js";

/** @typedef {import("./payloads").Offer} Offer */

/**
 * @param {Offer[]} offers
 * @param {number} picked
 * @param {(number: number) => void} pick
 * @returns {HTMLElement} a choice among them
 */
export function createOffers(offers, picked, pick) {
  const rows = offers.map((offer, number) => {
    const radio = createElement("input", { type: "radio", name: "paceline-offer", checked: number === picked });
    radio.addEventListener("change", () => pick(number));
    const title = createElement("strong", {}, offer.label);
    return createElement("label", {}, radio, createElement("span", {}, title, ...findings(offer)));
  });
  return createBox("paceline-offer-list", ...rows);
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
