// What Compare Models shows in the node: two pictures, what was found, every round, and the numbers behind it.

import { copyPicture, createCard, finding, qualityWords, savePicture } from "./card.js";
import { createButton, createIconButton } from "./dialog.js";
import { modeButtons, openLightbox } from "./lightbox.js";
import { createRounds, sideWords } from "./rounds.js";
import { address } from "./saved_image.js";
import { allSaid, capitalised, number, said } from "./said.js";
import { Viewer } from "./viewer.js";
import { direction, words } from "./words.js";

/** @typedef {import("./payloads").Comparison} Comparison */
/** @typedef {{comparison: Comparison, index: number}} Place a comparison, and a picture of its batch */

/**
 * @param {Comparison[]} comparisons one for each time the node ran: more than one for a list of prompts
 * @returns {HTMLElement[]} what the node shows
 */
export function comparisonParts(comparisons) {
  const places = comparisons.flatMap((comparison) =>
    comparison.pictures.baseline.map((_, index) => ({ comparison, index })),
  );
  const viewer = new Viewer();
  const head = Object.assign(document.createElement("div"), { className: "paceline-finding", dir: direction() });
  const rest = Object.assign(document.createElement("div"), { className: "paceline-findings" });
  const sides = Object.assign(document.createElement("div"), { className: "paceline-toolbar" });
  let place = places[0];
  let side = "optimized";
  const choose = (/** @type {string} */ chosen) => viewer.show(pairOf(place, (side = chosen)));
  /** @type {Comparison | undefined} */
  let shown;
  const show = (/** @type {number} */ number) => {
    place = places[number];
    if (!place.comparison.pictures[side]) side = "optimized";
    viewer.show(pairOf(place, side));
    if (shown === place.comparison) return;
    shown = place.comparison;
    head.replaceChildren(...findingParts(shown));
    sides.replaceChildren(...(shown.fewer_steps ? [createSides(shown.fewer_steps, choose)] : []));
    rest.replaceChildren(createRounds(shown), createDetails(shown));
  };
  const bar = Object.assign(document.createElement("div"), { className: "paceline-toolbar" });
  const whole = createIconButton("expand", words("fullscreen"), () => {
    openLightbox(pairOf(place, side), viewer.mode, finding(place.comparison).headline);
  });
  bar.append(
    modeButtons(viewer, ["slider", "heat", "blink"]),
    ...(places.length > 1 ? [createPager(places.length, show)] : []),
    whole,
    ...cardButtons(() => cardOf(place.comparison, viewer.images)),
  );
  show(0);
  return [head, sides, viewer.element, bar, rest];
}

/**
 * @param {Place} place
 * @param {string} side that the baseline is held against
 * @returns {import("./viewer.js").Pair}
 */
function pairOf({ comparison: { pictures, fewer_steps }, index }, side) {
  const [left, right] = ["baseline", side].map((name) => address(pictures[name][index]));
  const name = side === "optimized" ? words("optimized") : `${fewer_steps?.steps} ${words("steps")}`;
  return { left, right, labels: [words("baseline"), name] };
}

/**
 * @param {Comparison} comparison
 * @returns {HTMLElement[]}
 */
function findingParts(comparison) {
  const { verdict, state, quality, phrases } = comparison;
  const { headline, proved } = finding(comparison);
  const title = Object.assign(document.createElement("strong"), { textContent: headline });
  title.dataset.proved = String(proved);
  const chip = Object.assign(document.createElement("span"), { textContent: qualityWords(quality) });
  chip.className = "paceline-quality";
  const text = Object.assign(document.createElement("p"), { className: "paceline-verdict" });
  text.textContent = said(verdict, phrases?.verdict);
  for (const part of [title, chip, text]) part.dataset.state = state;
  return [title, chip, text];
}

/**
 * @param {import("./payloads").FewerSteps} control the plain model with as many steps as fit into the same time
 * @param {(side: string) => void} choose
 * @returns {HTMLElement} buttons for what the baseline is held against
 */
function createSides({ steps, full_steps, seconds, ratio, as_good }, choose) {
  const group = Object.assign(document.createElement("div"), { className: "paceline-modes", role: "group" });
  const buttons = ["optimized", "fewer_steps"].map((side) => {
    const label = side === "optimized" ? words("optimized") : `${words("plain")}: ${steps} / ${full_steps} ${words("steps")}`;
    const button = createButton(label, () => {
      choose(side);
      for (const each of buttons) each.ariaPressed = String(each === button);
    });
    button.ariaPressed = String(side === "optimized");
    return button;
  });
  buttons[1].dataset.state = as_good ? "partly" : "inactive";
  const times = ratio === null ? [] : [`${words("differenceMap")}: ${number(ratio, "#.2g")} × ${words("optimized")}`];
  buttons[1].title = [`${number(seconds, "#.3g")} s`, ...times].join(", ");
  group.append(...buttons);
  return group;
}

/**
 * @param {number} count
 * @param {(number: number) => void} show
 * @returns {HTMLElement}
 */
function createPager(count, show) {
  const pager = Object.assign(document.createElement("div"), { className: "paceline-pager" });
  const text = Object.assign(document.createElement("output"), { textContent: `1 / ${count}` });
  let at = 0;
  const turn = (/** @type {number} */ by) => {
    at = (at + by + count) % count;
    text.textContent = `${at + 1} / ${count}`;
    show(at);
  };
  const [before, after] = [createButton("‹", () => turn(-1)), createButton("›", () => turn(1))];
  before.ariaLabel = words("previous");
  after.ariaLabel = words("next");
  pager.append(before, text, after);
  return pager;
}

/**
 * @param {Comparison} comparison
 * @returns {HTMLElement} the numbers behind the verdict
 */
function createDetails({ distances, lines, phrases }) {
  const details = Object.assign(document.createElement("details"), { className: "paceline-details", dir: direction() });
  const summary = Object.assign(document.createElement("summary"), { textContent: words("details") });
  const table = document.createElement("table");
  table.createCaption().textContent = words("difference");
  const header = table.createTHead().insertRow();
  for (const name of ["", "RMSE", "PSNR (dB)", "SSIM", "LPIPS"]) {
    header.append(Object.assign(document.createElement("th"), { textContent: name, scope: "col" }));
  }
  const body = table.createTBody();
  for (const [name, { rmse, psnr, ssim, lpips }] of Object.entries(distances)) {
    const row = body.insertRow();
    row.append(Object.assign(document.createElement("th"), { textContent: capitalised(sideWords(name)), scope: "row" }));
    for (const value of [digits(rmse, 4), psnr === null ? "∞" : digits(psnr, 1), digits(ssim, 4), digits(lpips, 4)]) {
      row.insertCell().textContent = value;
    }
  }
  const list = document.createElement("ul");
  for (const line of allSaid(lines, phrases?.lines)) list.append(Object.assign(document.createElement("li"), { textContent: capitalised(line) }));
  details.append(summary, table, list);
  return details;
}

/**
 * @param {number | null} value
 * @param {number} places
 * @returns {string}
 */
function digits(value, places) {
  return value === null ? "–" : number(value, `.${places}f`);
}

/**
 * @param {Comparison} comparison
 * @param {HTMLImageElement[]} images
 * @returns {Promise<Blob>}
 */
function cardOf(comparison, images) {
  const { verdict, phrases, seconds, about, sheet, pictures } = comparison;
  const { model, device, torch, comfyui, steps, sampler_name, scheduler, cfg, recipe } = about;
  const size = `${images[0].naturalWidth} x ${images[0].naturalHeight}`;
  const count = pictures.baseline.length;
  const lines = [
    said(verdict, phrases?.verdict),
    recipe,
    [model, device].join(" · "),
    [size, `batch ${count}`, `${steps} ${words("steps")}`, `${sampler_name} ${scheduler}`, `cfg ${cfg}`, `${words("rounds")}: ${seconds.baseline.length}`].join(" · "),
    `torch ${torch} · ComfyUI ${comfyui}`,
  ].filter(Boolean);
  return createCard({ images, ...finding(comparison), lines, sheet: address(sheet) });
}

/**
 * @param {() => Promise<Blob>} make
 * @returns {HTMLElement[]}
 */
function cardButtons(make) {
  const save = createIconButton("download", words("saveCard"), async () => savePicture(await make(), "paceline.png"));
  // Browsers offer the clipboard to secure pages only: https or localhost.
  if (!navigator.clipboard?.write) return [save];
  const copy = createButton(words("copyCard"), async () => {
    await copyPicture(make());
    copy.textContent = words("copied");
    setTimeout(() => (copy.textContent = words("copyCard")), 2000);
  });
  return [copy, save];
}
