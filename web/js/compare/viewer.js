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
  #heat = layer("heat");
  #range = createElement("input");
  /** @type {Mode} */
  #mode = "slider";

  constructor() {
    const [left, right] = this.#images.map((image, index) => layer(index ? "right" : "left", image));
    this.#labels.forEach((label, index) => (label.className = `paceline-viewer-label paceline-viewer-${index}`));
    this.box.append(right, left, this.#heat, createBox("paceline-viewer-line"), ...this.#labels, this.#createRange());
    for (const image of this.#images) {
      image.draggable = false;
      image.addEventListener("load", () => this.#loaded());
    }
    this.mode = "slider";
    this.share = 50;
  }

  /** @param {Pair} pair */
  show({ left, right, labels }) {
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
    this.#drawHeat();
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
    this.#heat.replaceChildren(); // of other pictures
    this.#drawHeat();
  }

  #drawHeat() {
    const [left, right] = this.#images;
    if (this.#mode !== "heat" || this.#heat.childElementCount || !left.naturalWidth || !right.naturalWidth) return;
    const { canvas, gain } = heatMap(left, right);
    const text = gain ? `${words("mode_heat")} × ${gain}` : words("noDifference");
    const label = createElement("span", { className: "paceline-viewer-label paceline-viewer-0" }, text);
    this.#heat.append(Object.assign(canvas, { role: "img", ariaLabel: text }), label);
  }
}

/**
 * @param {string} name
 * @param {HTMLElement[]} content
 */
function layer(name, ...content) {
  return createBox(`paceline-layer paceline-layer-${name}`, ...content);
}

/** Colours from no difference to the largest: a few of Matplotlib's "inferno" (CC0). */
const COLOURS = [[0, 0, 4], [87, 16, 110], [188, 55, 84], [249, 142, 9], [252, 255, 164]];

const GAINS = [64, 32, 16, 8, 4, 2, 1];

/** One value in a thousand may be brighter than the scale, so that a few edges do not hide everything else. */
const SHARE = 0.999;

/**
 * @param {HTMLImageElement} one
 * @param {HTMLImageElement} other of the same size
 * @returns {{canvas: HTMLCanvasElement, gain: number}} how much the differences are amplified; 0 if there is none
 */
export function heatMap(one, other) {
  const { naturalWidth: width, naturalHeight: height } = one;
  const { data, gain } = differences(pixels(one, width, height), pixels(other, width, height));
  const canvas = createElement("canvas", { width, height });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.putImageData(new ImageData(data, width, height), 0, 0);
  return { canvas, gain };
}

/**
 * @param {Uint8ClampedArray} before RGBA
 * @param {Uint8ClampedArray} after RGBA
 * @returns {{data: Uint8ClampedArray<ArrayBuffer>, gain: number}} RGBA
 */
export function differences(before, after) {
  const largest = new Uint8Array(before.length / 4);
  const counts = new Uint32Array(256);
  for (let at = 0; at < largest.length; at++) {
    for (let value = at * 4; value < at * 4 + 3; value++) {
      largest[at] = Math.max(largest[at], Math.abs(before[value] - after[value]));
    }
    counts[largest[at]]++;
  }
  const gain = counts[0] === largest.length ? 0 : gainFor(counts, largest.length);
  const table = Array.from({ length: 256 }, (_, value) => colour(Math.min(1, (value * gain) / 255)));
  const data = new Uint8ClampedArray(before.length);
  for (let at = 0; at < largest.length; at++) data.set(table[largest[at]], at * 4);
  return { data, gain };
}

/**
 * @param {HTMLImageElement} image
 * @param {number} width
 * @param {number} height
 * @returns {Uint8ClampedArray} RGBA
 */
function pixels(image, width, height) {
  const canvas = createElement("canvas", { width, height });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { willReadFrequently: true }));
  context.drawImage(image, 0, 0, width, height);
  return context.getImageData(0, 0, width, height).data;
}

/**
 * @param {Uint32Array} counts how often each difference occurs
 * @param {number} total
 */
function gainFor(counts, total) {
  let seen = 0;
  const size = counts.findIndex((count) => (seen += count) >= SHARE * total);
  return GAINS.find((gain) => size * gain <= 255) ?? 1;
}

/**
 * @param {number} share of the whole scale
 * @returns {number[]} RGBA
 */
function colour(share) {
  const place = share * (COLOURS.length - 1);
  const lower = Math.min(Math.floor(place), COLOURS.length - 2);
  const mixed = COLOURS[lower].map((value, channel) => value + (COLOURS[lower + 1][channel] - value) * (place - lower));
  return [...mixed.map(Math.round), 255];
}
