// One badge: what a node did in its last run, as an element that can stand in a node of either renderer, and its details.

import { activityLines, badgeText, colourOf, headlineOf, shownActivity, stateText } from "./activity.js";
import { createBox, createElement } from "../frontend/elements.js";
import { direction, words } from "../frontend/language.js";

/** Shape as well as colour tells the state. */
const SIGNS = {
  active: "●",
  partly: "◐",
  inactive: "○",
  waiting: "◔",
  working: "↻",
  failed: "▲",
  cancelled: "×",
  stale: "◌",
  ran: "●",
  unknown: "–",
};

/**
 * @param {string} state
 * @returns {string} one character
 */
export function signOf(state) {
  return SIGNS[/** @type {keyof typeof SIGNS} */ (state)] ?? "●";
}

export class Badge {
  #sign = createElement("span", { className: "paceline-badge-sign", ariaHidden: "true" });
  #text = createElement("span", { className: "paceline-badge-text" });
  #progress = createElement("progress", { className: "paceline-badge-progress" });
  #button = createElement("button", { type: "button", className: "paceline-badge" }, this.#sign, this.#text, this.#progress);
  element = createBox("paceline-badge-row", this.#button);
  /** @type {Activity | undefined} */
  #activity;

  /** @param {() => void} onOpen called on a click or with the keyboard */
  constructor(onOpen) {
    this.#button.addEventListener("click", onOpen);
    for (const event of ["pointerenter", "focus"]) this.#button.addEventListener(event, () => this.#showDetails());
    for (const event of ["pointerleave", "blur"]) this.#button.addEventListener(event, hideTooltip);
    this.#button.addEventListener("keydown", (event) => {
      if (event.key === "Escape") hideTooltip();
      // The canvas has shortcuts for these two as well.
      if (event.key === "Enter" || event.key === " ") event.stopPropagation();
    });
  }

  /**
   * @param {Entry} entry
   * @param {LGraphNode} node
   */
  show(entry, node) {
    const activity = shownActivity(entry, node);
    if (!activity) return;
    this.#activity = activity;
    const { state, progress } = activity;
    this.#button.dataset.state = colourOf(activity);
    this.#sign.textContent = signOf(state);
    this.#text.textContent = badgeText(activity);
    this.#text.dir = direction();
    this.#button.ariaLabel = `Paceline, ${stateText(activity)}: ${activityLines(activity).map((line) => line.replace(/[.]$/, "")).join(". ")}. ${words("showReport")}`;
    this.#progress.hidden = progress === undefined;
    // Without a value the bar says only that something goes on.
    if (progress == null) this.#progress.removeAttribute("value");
    else this.#progress.value = progress;
    this.#progress.ariaLabel = headlineOf(activity);
    if (this.#button.hasAttribute("aria-describedby")) this.#showDetails();
  }

  removed() {
    if (this.#button.hasAttribute("aria-describedby")) hideTooltip();
  }

  #showDetails() {
    if (this.#activity) showTooltip(this.#button, this.#activity);
  }
}

const ID = "paceline-tooltip";

/**
 * @param {HTMLElement} owner the element that is described
 * @param {Activity} activity
 */
export function showTooltip(owner, activity) {
  hideTooltip();
  const lines = [`${activity.title}: ${stateText(activity)}`, ...activityLines(activity)];
  const rows = lines.map((line) => createElement("div", {}, createElement("bdi", {}, line))); // the headline can be of another language
  const tooltip = createElement("div", { id: ID, role: "tooltip", className: "paceline-tooltip", dir: direction() }, ...rows);
  document.body.append(tooltip);
  owner.setAttribute("aria-describedby", ID);

  const anchor = owner.getBoundingClientRect();
  const { width, height } = tooltip.getBoundingClientRect();
  const below = anchor.bottom + 6;
  const top = below + height <= window.innerHeight ? below : anchor.top - height - 6;
  tooltip.style.left = `${Math.max(8, Math.min(anchor.left, window.innerWidth - width - 8))}px`;
  tooltip.style.top = `${Math.max(8, top)}px`;
  shown.observe(owner);
}

/** A node that is removed, folded or seen from afar takes its badge away, of which the pointer tells nothing. */
const shown = new ResizeObserver((owners) => {
  if (owners.some(({ target }) => !target.getClientRects().length)) hideTooltip();
});

/** Remove the tooltip if there is one. */
export function hideTooltip() {
  shown.disconnect();
  document.getElementById(ID)?.remove();
  document.querySelector(`[aria-describedby="${ID}"]`)?.removeAttribute("aria-describedby");
}
