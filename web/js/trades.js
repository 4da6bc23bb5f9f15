// The trades that a search has found: how much less work, how far the farthest picture moved, what changes in other nodes.

import { cardButtons, createCard } from "./card.js";
import { createBox, createElement } from "./elements.js";
import { number } from "./said.js";
import { address } from "./server.js";
import { shareWords } from "./trial_words.js";
import { words } from "./words.js";

/**
 * @param {Trade[]} trades from the most careful to the fastest
 * @param {string | undefined} picked label of the one that a person has chosen before, "" for none of them
 * @param {(trade: Trade | undefined, picked?: string) => void} choose undefined for none of them; picked is given where a person chose
 * @returns {HTMLElement} a choice among them, and the picture of the one that is chosen
 */
export function createTrades(trades, picked, choose) {
  const picture = createElement("img", { className: "paceline-trade-picture", alt: words("worstPicture") });
  /** @type {Trade | undefined} */
  let shown;
  const show = (/** @type {Trade | undefined} */ trade) => {
    shown = trade;
    figure.hidden = !trade?.picture;
    if (trade?.picture) picture.src = address(trade.picture);
  };
  const pick = (/** @type {Trade | undefined} */ trade) => {
    show(trade);
    choose(trade, trade?.label ?? "");
  };
  const fastest = trades[trades.length - 1];
  const first = picked === "" ? undefined : trades.find(({ label }) => label === picked) ?? fastest;
  const rows = [...trades].reverse().map((trade) => row(tradeLines(trade), trade === first, () => pick(trade)));
  const none = row([words("searchKeep")], !first, () => pick(undefined));
  const ours = fastest.ours ? [] : [createElement("small", {}, words("notOurs"))];
  const caption = createElement("figcaption", {}, createElement("small", {}, words("worstPicture")));
  const card = createBox("paceline-toolbar", ...cardButtons(() => cardOf(trades, shown ?? fastest, picture)));
  const figure = createElement("figure", {}, picture, caption, card);
  show(first);
  choose(first);
  return createBox("paceline-trades", ...rows, none, ...ours, figure);
}

/**
 * @param {string[]} lines
 * @param {boolean} checked
 * @param {() => void} onChosen
 */
function row([first, ...more], checked, onChosen) {
  const radio = createElement("input", { type: "radio", name: "paceline-trade", checked });
  radio.addEventListener("change", onChosen);
  const small = more.map((textContent) => createElement("small", { textContent }));
  return createElement("label", {}, radio, createElement("span", {}, createElement("strong", {}, first), ...small));
}

/** @param {number} gain */
export function gainWords(gain) {
  return `${number(gain, ".2f")}x ${words("lessWork")}`;
}

/**
 * @param {Trade} trade
 * @returns {string[]} e.g. "2.7x less work: 20 steps", "difference 1/12 of a seed change in the worst of 3 pictures"
 */
function tradeLines({ label, gain, time, worst, pictures, edits }) {
  const far = `${shareWords(worst)} ${words("worstOf").replace("%n", String(pictures))}`;
  const measured = time ? `, ${number(time, ".2f")}x ${words("faster")}` : "";
  const changes = edits.map(({ title, input, before, after }) => `${title}: ${input} ${before} → ${after}`);
  return [`${gainWords(gain)}: ${label}`, far + measured, ...changes];
}

/**
 * @param {Trade[]} trades
 * @param {Trade} shown
 * @param {HTMLImageElement} picture
 */
function cardOf(trades, shown, picture) {
  const headline = gainWords(shown.gain);
  const lines = [shown.label, ...tradeLines(shown).slice(1)];
  const others = trades.filter((trade) => trade !== shown).map(({ gain, label, worst }) => `${number(gain, ".2f")}x: ${label}, ${shareWords(worst)}`);
  return createCard({ images: [picture], headline, proved: true, lines: [...lines, others.reverse().join(" · ")].filter(Boolean) });
}
