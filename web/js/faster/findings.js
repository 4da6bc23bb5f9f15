// What the dialog shows: where the time of a picture goes and what can be done about each part, and what could be inserted.

import { createApart, createBox, createElement } from "../frontend/elements.js";
import { number, said } from "../badges/headlines.js";
import { address } from "../frontend/server.js";
import { words, wordsOf } from "../frontend/language.js";

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

/**
 * Count the pictures of a proof, pair by pair, by the ids of its nodes (`_draw` in service/faster/prompts.py).
 * @returns {(share: number, node: string, total: number) => {share: number, said: string}} told the progress of a node and
 *   how many pictures there are to be, says how far the proof is
 */
export function proofCount() {
  const begun = new Set();
  const started = performance.now();
  return (share, node, total) => {
    const [picture] = / (baseline|optimized) \d+ /.exec(node) ?? [];
    if (picture) begun.add(picture);
    const done = (Math.max(1, begun.size) - 1 + share) / total;
    const left = (((performance.now() - started) / 1000) * (1 - done)) / Math.max(done, 0.01);
    const said = words("proofCount").replace("%n", String(begun.size)).replace("%t", String(total)).replace("%s", number(left, ".0f"));
    return { share: done, said: begun.size ? said : "" };
  };
}

/**
 * @param {Offer} offer
 * @returns {HTMLElement}
 */
export function createOffer({ label, expected, about, measured, beyond, picture }) {
  const guess = createElement("small", { className: "paceline-expected" }, `${said(expected)}; ${said(about)}`);
  const className = beyond ? "paceline-measured paceline-beyond" : "paceline-measured";
  const fact = measured ? [createElement("small", { className }, said(measured))] : [];
  const shown = picture ? [createElement("img", { src: address(picture), alt: words("worstPicture"), title: words("worstPicture") })] : [];
  return createBox("paceline-offer", createElement("strong", {}, label), ...fact, guess, ...shown);
}
