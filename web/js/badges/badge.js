// One badge: what a node did in its last run, as an element that can stand in a node of either renderer.

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
  /** Without a value: it says only that something goes on. */
  #progress = createElement("progress", { className: "paceline-badge-progress" });
  #button = createElement("button", { type: "button", className: "paceline-badge" }, this.#sign, this.#text, this.#progress);
  element = createBox("paceline-badge-row", this.#button);

  /** @param {() => void} onOpen called on a click or with the keyboard */
  constructor(onOpen) {
    this.#button.addEventListener("click", onOpen);
    this.#button.addEventListener("keydown", (event) => {
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
    const { state } = activity;
    this.#button.dataset.state = colourOf(activity);
    this.#sign.textContent = signOf(state);
    this.#text.textContent = badgeText(activity);
    this.#text.dir = direction();
    this.#button.title = [`${activity.title}: ${stateText(activity)}`, ...activityLines(activity)].join("\n");
    this.#button.ariaLabel = `Paceline, ${stateText(activity)}: ${activityLines(activity).map((line) => line.replace(/[.]$/, "")).join(". ")}. ${words("showReport")}`;
    this.#progress.hidden = !activity.busy;
    this.#progress.ariaLabel = headlineOf(activity);
  }
}
