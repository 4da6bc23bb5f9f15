// What Compare Models shows in the node: two pictures, what was found, every round, and the numbers behind it.

import { app, attempt } from "../frontend/comfy.js";
import { createBox, createButton, createChoice, createElement } from "../frontend/elements.js";
import { modeButtons, openLightbox } from "./lightbox.js";
import { createRounds, sideWords } from "./rounds.js";
import { address } from "../frontend/server.js";
import { number } from "../badges/headlines.js";
import { Viewer } from "./viewer.js";
import { words, wordsOf } from "../frontend/language.js";

const CONTROLS = /** @type {const} */ (["late_levels", "fewer_steps"]);

/** So many rounds more are offered where the time is not clear. */
const MORE = 4;

/** @typedef {{comparison: Comparison, index: number}} Place a comparison, and a picture of its batch */

/**
 * @param {Comparison[]} comparisons one for each time the node ran: more than one for a list of prompts
 * @param {LGraphNode} [node] that shows them
 * @returns {HTMLElement[]} what the node shows
 */
export function comparisonParts(comparisons, node) {
  const places = comparisons.flatMap((comparison) =>
    comparison.files.pictures.baseline.map((_, index) => ({ comparison, index })),
  );
  const viewer = new Viewer();
  const [head, sides, rest] = [createBox("paceline-finding"), createBox("paceline-toolbar"), createBox("paceline-findings")];
  const players = createBox("paceline-players");
  const first = comparisons[0].shown.indexOf(comparisons[0].farthest.picture); // of pictures 0: the worst comes first
  let place = places[first];
  let side = "optimized";
  const choose = (/** @type {string} */ chosen) => viewer.show(pairOf(place, (side = chosen)));
  /** @type {Comparison | undefined} */
  let shown;
  const show = (/** @type {number} */ number) => {
    place = places[number];
    if (!place.comparison.files.pictures[side]) side = "optimized";
    viewer.show(pairOf(place, side));
    if (shown === place.comparison) return;
    shown = place.comparison;
    head.replaceChildren(...findingParts(shown), ...createMore(shown, node));
    sides.replaceChildren(...createSides(shown, choose));
    players.replaceChildren(...createPlayers(shown));
    rest.replaceChildren(createRounds(shown), createDetails(shown));
  };
  const whole = createButton("", () => openLightbox(pairOf(place, side), viewer.mode, finding(place.comparison).headline));
  whole.append(createElement("i", { className: "pi pi-expand" }));
  whole.ariaLabel = whole.title = words("fullscreen");
  const bar = createBox(
    "paceline-toolbar",
    modeButtons(viewer, ["slider", "heat", "blink"]),
    ...(places.length > 1 ? [createPager(places, first, show)] : []),
    whole,
  );
  show(first);
  return [head, sides, viewer.element, bar, players, rest];
}

/**
 * @param {Place} place
 * @param {string} side that the baseline is held against
 * @returns {Pair}
 */
function pairOf({ comparison, index }, side) {
  const [left, right] = ["baseline", side].map((name) => address(comparison.files.pictures[name][index]));
  return { left, right, labels: [words("baseline"), nameOf(comparison, side)], gain: comparison.gains[side][index] };
}

/**
 * @param {Comparison} comparison
 * @param {string} side
 * @returns {string} e.g. "10 / 20 steps"
 */
function nameOf({ late_levels, fewer_steps }, side) {
  const control = { late_levels, fewer_steps }[side];
  return control ? `${control.steps} / ${control.full_steps} ${words(side === "late_levels" ? "levels" : "steps")}` : words("optimized");
}

/**
 * @param {Comparison} comparison
 * @returns {{headline: string, proved: boolean}} e.g. "1.62x faster", only where the rounds prove it
 */
export function finding({ state, speedup, quality }) {
  if (state === "faster") return { headline: `${number(speedup, ".2f")}x ${words("faster")}`, proved: true };
  if (state === "slower") return { headline: `${number(1 / speedup, ".2f")}x ${words("slower")}`, proved: true };
  if (/^(another|no) /.test(quality)) return { headline: qualityWords(quality), proved: false };
  return { headline: words("notProved"), proved: false };
}

/** @param {string} quality */
function qualityWords(quality) {
  return wordsOf(`quality_${quality.replaceAll(" ", "_")}`);
}

/** @param {Comparison} comparison */
function findingParts(comparison) {
  const { verdict, badge, quality } = comparison;
  const { headline, proved } = finding(comparison);
  const title = createElement("strong", { dir: "auto" }, headline);
  title.dataset.proved = String(proved);
  const chip = createElement("span", { className: "paceline-quality", dir: "auto" }, qualityWords(quality));
  const text = createElement("p", { className: "paceline-verdict" }, verdict);
  for (const part of [title, chip, text]) part.dataset.state = badge;
  return [title, chip, text];
}

/**
 * @param {Comparison} comparison
 * @param {LGraphNode} [node]
 * @returns {HTMLElement[]} a button that draws the comparison again with more rounds, where the time is not clear
 */
function createMore({ clear, seconds }, node) {
  const runs = node?.widgets?.find(({ name }) => name === "runs");
  if (clear || !runs) return [];
  const button = createButton(words("moreRounds").replace("%n", String(MORE)), () => {
    button.disabled = true;
    runs.value = seconds.baseline.length + MORE;
    runs.callback?.(runs.value);
    void attempt(() => app.extensionManager.command.execute("Comfy.QueuePrompt"));
  });
  return [button];
}

/**
 * @param {Comparison} comparison
 * @param {(side: string) => void} choose
 * @returns {HTMLElement[]} buttons for what the baseline is held against, if there is a choice
 */
function createSides(comparison, choose) {
  const controls = CONTROLS.flatMap((name) => (comparison[name] ? [{ name, ...comparison[name] }] : []));
  if (!controls.length) return [];
  const names = controls.map(/** @returns {[string, string]} */ ({ name }) => [name, `${words("plain")}: ${nameOf(comparison, name)}`]);
  const group = createChoice([["optimized", words("optimized")], ...names], "optimized", choose);
  for (const [at, { seconds, ratio, as_good }] of controls.entries()) {
    const button = /** @type {HTMLElement} */ (group.children[at + 1]);
    button.dataset.state = as_good ? "partly" : "inactive";
    const times = ratio === null ? [] : [`${words("mode_heat")}: ${number(ratio, "#.2g")} × ${words("optimized")}`];
    button.title = [`${number(seconds, "#.3g")} s`, ...times].join(", ");
  }
  return [group];
}

/**
 * @param {Comparison} comparison
 * @returns {HTMLElement[]} a video in motion, and sounds
 */
function createPlayers({ files: { motion, sounds = {} } }) {
  const both = `${words("baseline")}, ${words("optimized")}`;
  const video = motion ? [createElement("img", { src: address(motion), alt: both, title: both, className: "paceline-motion" })] : [];
  const heard = Object.entries(sounds).map(([side, sound]) => {
    const player = createElement("audio", { src: address(sound), controls: true, preload: "none" });
    return createElement("label", { className: "paceline-sound" }, createElement("span", {}, sideWords(side)), player);
  });
  return [...video, ...heard];
}

/**
 * @param {Place[]} places
 * @param {number} at the first one
 * @param {(number: number) => void} show
 */
function createPager(places, at, show) {
  const text = createElement("output");
  const say = () => {
    const { comparison, index } = places[at];
    const { shown, count, seed_shares, files } = comparison;
    const single = places.length === files.pictures.baseline.length;
    // The worst is first, and each keeps its number.
    const far = seed_shares[shown[index] - 1];
    const share = single && far !== null ? `: ${number(far, ".2g")}` : "";
    text.textContent = single ? `${shown[index]} / ${count}${share}` : `${at + 1} / ${places.length}`;
    text.title = share ? words("seedShare") : "";
  };
  const turn = (/** @type {number} */ by) => {
    at = (at + by + places.length) % places.length;
    say();
    show(at);
  };
  say();
  const [before, after] = [createButton("‹", () => turn(-1)), createButton("›", () => turn(1))];
  before.ariaLabel = words("previous");
  after.ariaLabel = words("next");
  return createBox("paceline-pager", before, text, after);
}

/**
 * @param {Comparison} comparison
 * @returns {HTMLElement} the numbers behind the verdict
 */
function createDetails({ difference, late_levels, fewer_steps, noise_floor, lines }) {
  /** @type {Record<string, Distance | undefined>} */
  const distances = { optimized: difference, late_levels: late_levels?.difference, fewer_steps: fewer_steps?.difference, ...noise_floor };
  const digits = (/** @type {number | null} */ value, /** @type {number} */ places) => (value === null ? "–" : number(value, `.${places}f`));
  const heads = ["", "RMSE", "PSNR (dB)", "SSIM"].map((name) => createElement("th", { textContent: name, scope: "col" }));
  const rows = Object.entries(distances).flatMap(([name, distance]) => {
    if (!distance) return [];
    const { rmse, psnr, ssim } = distance;
    const head = createElement("th", { textContent: capitalised(sideWords(name)), scope: "row" });
    const values = [digits(rmse, 4), psnr === null ? "∞" : digits(psnr, 1), digits(ssim, 4)];
    return [createElement("tr", {}, head, ...values.map((value) => createElement("td", {}, value)))];
  });
  const caption = createElement("caption", {}, words("difference"));
  const header = createElement("thead", {}, createElement("tr", {}, ...heads));
  const table = createElement("table", {}, caption, header, createElement("tbody", {}, ...rows));
  const list = createElement("ul", {}, ...lines.map((line) => createElement("li", {}, capitalised(line))));
  const summary = createElement("summary", {}, words("details"));
  return createElement("details", { className: "paceline-details" }, summary, table, list);
}

/**
 * @param {string} text
 * @returns {string} it with a capital at its start; a name (fp32_x) stays what it is
 */
function capitalised(text) {
  return /^\p{Ll}+[\s:,]/u.test(`${text} `) ? text[0].toUpperCase() + text.slice(1) : text;
}
