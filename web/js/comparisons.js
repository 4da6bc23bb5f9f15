// The results of Compare Models, shown in the node.

import { addElement, api, hasElement, removeElement } from "./comfy.js";
import { createChart } from "./chart.js";
import { findNode, openWorkflow } from "./graph.js";
import { createSlider } from "./slider.js";
import { words } from "./words.js";

/** @typedef {import("./graph.js").LGraphNode} LGraphNode */
/** @typedef {{filename: string, subfolder: string, type: string}} SavedImage as ComfyUI's /view serves it */

/**
 * The part of `record` in optimizers/hosts/comfyui/comparison/words.py that is shown.
 * @typedef {object} Comparison
 * @property {string} verdict one line
 * @property {string} state of the verdict
 * @property {string} speedup_of what the seconds are of
 * @property {Record<string, number | null>} seconds `baseline`, `optimized`
 * @property {{rmse: number}} difference between the two
 * @property {Record<string, {rmse: number}>} noise_floor other differences, to hold it to
 * @property {Record<string, SavedImage[]>} files `baseline`, `optimized`
 */

/** How the verdicts are coloured. */
const COLOURS = { faster: "active", no_effect: "inactive", suspicious: "failed", broken: "failed" };

const WIDGET = "$$paceline-comparison";
const MIN_HEIGHT = 400;
const MIN_WIDTH = 340;

/**
 * @param {SavedImage} image
 * @returns {string} its address
 */
function address(image) {
  const query = new URLSearchParams({ ...image });
  return api.apiURL(`/view?${query}`);
}

/**
 * @param {Comparison} comparison
 * @returns {HTMLElement[]} what the node shows
 */
function parts(comparison) {
  const { verdict, state, speedup_of, seconds, difference, noise_floor, files } = comparison;
  const judgement = Object.assign(document.createElement("p"), { className: "paceline-verdict", textContent: verdict });
  judgement.dataset.state = COLOURS[/** @type {keyof typeof COLOURS} */ (state)] ?? "partly";
  const sliders = (files?.baseline ?? []).flatMap((image, index) => {
    const other = files.optimized?.[index];
    return other ? [createSlider(address(image), address(other))] : [];
  });
  const times = Object.entries(seconds ?? {}).flatMap(([side, value]) =>
    typeof value === "number" ? [{ label: sideWords(side), value }] : [],
  );
  const distances = [{ label: words("optimized"), value: difference?.rmse ?? 0 }];
  for (const [name, { rmse }] of Object.entries(noise_floor ?? {})) distances.push({ label: sideWords(name), value: rmse });
  return [
    ...sliders,
    judgement,
    createChart(`${words("seconds")} (${speedup_of})`, times),
    createChart(words("difference"), distances),
  ];
}

/**
 * @param {string} side
 * @returns {string}
 */
function sideWords(side) {
  if (side === "baseline" || side === "optimized") return words(side);
  return side.replaceAll("_", " ");
}

export class Comparisons {
  /** @type {Map<LGraphNode, {element: HTMLElement, comparison: unknown}>} */
  #shown = new Map();
  #started = false;

  /** @param {import("./store.js").ActivityStore} store */
  constructor(store) {
    this.store = store;
  }

  /** Begin, once the frontend has a graph. */
  start() {
    this.#started = true;
    this.store.addEventListener("change", () => this.refresh());
    this.refresh();
  }

  /** Show the comparisons of the open workflow's nodes, and no others. */
  refresh() {
    if (!this.#started) return;
    /** @type {Map<LGraphNode, Comparison>} */
    const wanted = new Map();
    for (const { node: executionId, comparison } of this.store.entries(openWorkflow())) {
      const node = findNode(executionId);
      if (node && comparison) wanted.set(node, /** @type {Comparison} */ (comparison));
    }
    for (const node of this.#shown.keys()) {
      if (wanted.has(node)) continue;
      this.#shown.delete(node);
      removeElement(node, WIDGET);
    }
    for (const [node, comparison] of wanted) this.#show(node, comparison);
  }

  /**
   * @param {LGraphNode} node
   * @param {Comparison} comparison
   */
  #show(node, comparison) {
    const shown = hasElement(node, WIDGET) ? this.#shown.get(node) : undefined;
    if (shown?.comparison === comparison) return; // the slider stays where the user has put it
    const element = shown?.element ?? document.createElement("div");
    element.className = "paceline-comparison";
    element.replaceChildren(...parts(comparison));
    this.#shown.set(node, { element, comparison });
    if (shown) return;
    addElement(node, WIDGET, element, { margin: 8, getMinHeight: () => MIN_HEIGHT });
    const [width, height] = node.computeSize();
    node.setSize([Math.max(node.size[0], width, MIN_WIDTH), Math.max(node.size[1], height)]);
  }
}
