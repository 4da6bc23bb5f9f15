// Where two pictures differ, as colours: black where they do not, then violet, orange, yellow.

import { createElement } from "./elements.js";

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
