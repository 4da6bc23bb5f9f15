// One badge: what a node did in its last run, as an element that can stand in a node of either renderer.

import { shortText } from "./short.js";
import { hideTooltip, showTooltip } from "./tooltip.js";
import { stateWords, words } from "./words.js";

/** @typedef {import("./store.js").Activity} Activity */

/** Shape as well as colour tells the state. */
const SIGNS = { active: "●", partly: "◐", inactive: "○", waiting: "…", working: "↻", failed: "▲", ran: "●", unknown: "–" };

/**
 * @param {string} state
 * @returns {string} one character
 */
export function signOf(state) {
  return SIGNS[/** @type {keyof typeof SIGNS} */ (state)] ?? "●";
}

export class Badge {
  /** @type {Activity | undefined} */
  #activity;
  #sign = document.createElement("span");
  #text = document.createElement("span");
  #button = document.createElement("button");
  #progress = document.createElement("progress");

  /** @param {() => void} onOpen called on a click or with the keyboard */
  constructor(onOpen) {
    this.element = document.createElement("div");
    this.element.className = "paceline-badge-row";
    this.#button.type = "button";
    this.#button.className = "paceline-badge";
    this.#sign.className = "paceline-badge-sign";
    this.#sign.ariaHidden = "true";
    this.#text.className = "paceline-badge-text";
    this.#progress.className = "paceline-badge-progress";
    this.#button.append(this.#sign, this.#text, this.#progress);
    this.element.append(this.#button);

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
   * @param {Activity} activity
   * @param {string} [prefix] said before the state, e.g. that the node is bypassed now
   */
  show(activity, prefix = "") {
    this.#activity = activity;
    this.#button.dataset.state = activity.state;
    this.#sign.textContent = signOf(activity.state);
    this.#text.textContent = (prefix && `${prefix} · `) + shortText(activity);
    const state = [prefix, stateWords(activity.state)].filter(Boolean).join(", ");
    this.#button.ariaLabel = `Paceline, ${state}: ${activity.text}. ${words("showReport")}`;
    this.#progress.hidden = activity.progress === undefined;
    if (activity.progress !== undefined) this.#progress.value = activity.progress;
    this.#progress.ariaLabel = activity.text;
  }

  #showDetails() {
    if (this.#activity) showTooltip(this.#button, this.#activity);
  }
}
