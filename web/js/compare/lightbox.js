// The comparison in the whole window. Wheel and pointer zoom and move both pictures together.

import { createBox, createButton, createChoice, createElement, showModal } from "../frontend/elements.js";
import { Viewer } from "./viewer.js";
import { words, wordsOf } from "../frontend/language.js";

const LARGEST_ZOOM = 32;

/**
 * @param {Pair} pair
 * @param {Mode} mode
 * @param {string} title
 */
export function openLightbox(pair, mode, title) {
  const viewer = new Viewer();
  viewer.show(pair);
  viewer.mode = mode;
  enableZoom(viewer);
  const close = createButton(words("close"), () => dialog.close());
  close.autofocus = true;
  const bar = createBox("paceline-toolbar", modeButtons(viewer, ["slider", "side", "heat", "blink"]), close);
  const dialog = createElement("dialog", { className: "paceline-lightbox", ariaLabel: title }, viewer.element, bar);
  showModal(dialog);
}

/**
 * @param {Viewer} viewer
 * @param {Mode[]} modes
 */
export function modeButtons(viewer, modes) {
  /** @type {[string, string][]} */
  const choices = modes.map((mode) => [mode, wordsOf(`mode_${mode}`)]);
  return createChoice(choices, viewer.mode, (mode) => (viewer.mode = /** @type {Mode} */ (mode)));
}

/** @param {Viewer} viewer */
function enableZoom({ element, box }) {
  let [zoom, x, y] = [1, 0, 0];
  const show = () => {
    element.style.setProperty("--paceline-zoom", String(zoom));
    element.style.setProperty("--paceline-x", `${100 * x}%`);
    element.style.setProperty("--paceline-y", `${100 * y}%`);
    element.dataset.zoomed = String(zoom > 1);
  };
  /** @param {number} shift of the picture's left or upper edge, in its own size */
  const inside = (shift) => Math.min(0, Math.max(1 - zoom, shift));
  /** @returns {DOMRect} of one picture: half of the box, where two stand side by side */
  const frame = () => /** @type {Element} */ (box.querySelector(".paceline-layer-right")).getBoundingClientRect();

  element.addEventListener("wheel", (event) => {
    event.preventDefault();
    const { left, top, width, height } = frame();
    const larger = Math.min(LARGEST_ZOOM, Math.max(1, zoom * Math.exp(-event.deltaY / 400)));
    const at = [((event.clientX - left) / width + 1) % 1, (event.clientY - top) / height];
    [x, y] = [x, y].map((shift, axis) => at[axis] - ((at[axis] - shift) * larger) / zoom);
    zoom = larger;
    [x, y] = [inside(x), inside(y)];
    show();
  });
  element.addEventListener("pointermove", ({ buttons, movementX, movementY }) => {
    if (!(buttons & 5)) return; // the left or the middle button
    const { width, height } = frame();
    [x, y] = [inside(x + movementX / width), inside(y + movementY / height)];
    show();
  });
  element.addEventListener("dblclick", () => {
    [zoom, x, y] = [1, 0, 0];
    show();
  });
}
