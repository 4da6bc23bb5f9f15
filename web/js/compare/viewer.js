// Two pictures of one size, seen in several ways: with a slider between them, in turn, side by side, or what differs.

import { createBox, createElement } from "../frontend/elements.js";
import { words } from "../frontend/language.js";

const ARROW_STEP = 5;

/** Pictures that have fewer pixels are shown with their pixels, not smoothed. */
const SMALL = 256;

export class Viewer {
  /** The box that is exactly as large as the picture: what a slider and a zoom are relative to. */
  box = createBox("paceline-viewer-box");
  element = createElement("figure", { className: "paceline-viewer" }, this.box);
  #images = [new Image(), new Image()];
  #labels = [createElement("span"), createElement("span")];
  #heat = createElement("span", { className: "paceline-viewer-label paceline-viewer-0" });
  #range = createElement("input");
  /** @type {Mode} */
  #mode = "slider";

  constructor() {
    const [left, right] = this.#images.map((image, index) => layer(index ? "right" : "left", image));
    this.#labels.forEach((label, index) => (label.className = `paceline-viewer-label paceline-viewer-${index}`));
    const layers = createBox("paceline-layers", right, left);
    this.box.append(layers, layer("heat", this.#heat), createBox("paceline-viewer-line"), ...this.#labels, this.#createRange());
    for (const image of this.#images) {
      image.draggable = false;
      image.addEventListener("load", () => this.#loaded());
    }
    this.mode = "slider";
    this.share = 50;
  }

  /** @param {Pair} pair */
  show({ left, right, labels, gain }) {
    this.element.style.setProperty("--paceline-gain", String(gain));
    this.#heat.textContent = gain ? `${words("mode_heat")} × ${gain}` : words("noDifference");
    [left, right].forEach((source, index) => {
      const image = this.#images[index];
      image.alt = this.#labels[index].textContent = labels[index];
      if (image.src !== new URL(source, document.baseURI).href) image.src = source;
    });
    this.#loaded();
  }

  /** @returns {Mode} */
  get mode() {
    return this.#mode;
  }

  /** @param {Mode} mode */
  set mode(mode) {
    this.#mode = mode;
    this.element.dataset.mode = mode;
    this.#range.disabled = mode !== "slider";
  }

  /** @param {number} share of the box, in percent from its left, that shows the left picture */
  set share(share) {
    const value = Math.min(100, Math.max(0, share));
    this.#range.value = String(value);
    this.#range.ariaValueText = `${Math.round(value)}%`;
    this.element.style.setProperty("--paceline-share", `${value}%`);
  }

  #createRange() {
    const range = this.#range;
    Object.assign(range, { type: "range", className: "paceline-viewer-range", min: "0", max: "100", step: "any" });
    range.ariaLabel = words("slider");
    // Under the pointer, not where a browser would put the middle of its handle.
    range.addEventListener("pointermove", ({ clientX }) => {
      const { left, width } = this.box.getBoundingClientRect();
      this.share = (100 * (clientX - left)) / width;
    });
    range.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      event.preventDefault();
      range.focus();
    });
    range.addEventListener("input", () => (this.share = Number(range.value)));
    range.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 };
      const direction = steps[/** @type {keyof typeof steps} */ (event.key)];
      if (!direction) return;
      event.stopPropagation(); // or the canvas would move the node
      event.preventDefault();
      this.share = Number(range.value) + direction * ARROW_STEP;
    });
    return range;
  }

  #loaded() {
    const [left, right] = this.#images;
    if (![left, right].every((image) => image.complete && image.naturalWidth)) return;
    const { naturalWidth, naturalHeight } = left;
    this.element.style.setProperty("--paceline-aspect", String(naturalWidth / naturalHeight));
    this.element.dataset.pixels = String(Math.max(naturalWidth, naturalHeight) < SMALL);
  }
}

/**
 * @param {string} name
 * @param {HTMLElement[]} content
 */
function layer(name, ...content) {
  return createBox(`paceline-layer paceline-layer-${name}`, ...content);
}
