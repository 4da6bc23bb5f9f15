// Two pictures on top of each other, and a slider that says how much of each is seen.

import { words } from "./words.js";

const ARROW_STEP = 5;

/**
 * @param {string} baseline address of the left picture
 * @param {string} optimized address of the right picture
 * @returns {HTMLElement}
 */
export function createSlider(baseline, optimized) {
  const figure = document.createElement("figure");
  figure.className = "paceline-slider";

  const under = Object.assign(new Image(), { src: optimized, alt: words("optimized"), draggable: false });
  const over = Object.assign(new Image(), { src: baseline, alt: words("baseline"), draggable: false });
  over.className = "paceline-slider-over";
  const line = document.createElement("div");
  line.className = "paceline-slider-line";
  const left = Object.assign(document.createElement("span"), { textContent: words("baseline") });
  left.className = "paceline-slider-label paceline-slider-left";
  const right = Object.assign(document.createElement("span"), { textContent: words("optimized") });
  right.className = "paceline-slider-label paceline-slider-right";

  const range = document.createElement("input");
  range.type = "range";
  range.className = "paceline-slider-range";
  range.min = "0";
  range.max = "100";
  range.step = "any"; // follows the pointer smoothly; the arrow keys have their own step
  range.value = "50";
  range.ariaLabel = words("slider");

  function show() {
    const share = Number(range.value);
    figure.style.setProperty("--paceline-share", `${share}%`);
    range.ariaValueText = `${Math.round(share)}%`;
  }
  range.addEventListener("input", show);
  range.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 };
    const direction = steps[/** @type {keyof typeof steps} */ (event.key)];
    event.stopPropagation(); // or the canvas would move the node
    if (!direction) return;
    event.preventDefault();
    range.value = String(Number(range.value) + direction * ARROW_STEP);
    show();
  });
  show();

  figure.append(under, over, line, left, right, range);
  return figure;
}
