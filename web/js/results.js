// What a run leaves behind for a node to show in itself: a comparison, a report.

import { addElement, hasElement, removeElement } from "./comfy.js";
import { findNode, openWorkflow } from "./graph.js";

/** @typedef {import("./graph.js").LGraphNode} LGraphNode */

/**
 * @typedef {object} Kind
 * @property {"comparison" | "report"} key of the store's entries
 * @property {number} minHeight in pixels
 * @property {number} minWidth in pixels
 * @property {(result: any) => HTMLElement[]} parts what is shown
 */

export class Results {
  /** @type {Map<LGraphNode, {element: HTMLElement, result: unknown}>} */
  #shown = new Map();
  #started = false;
  #widget;

  /**
   * @param {import("./store.js").ActivityStore} store
   * @param {Kind} kind
   */
  constructor(store, kind) {
    this.store = store;
    this.kind = kind;
    this.#widget = `$$paceline-${kind.key}`;
  }

  /** Begin, once the frontend has a graph. */
  start() {
    this.#started = true;
    this.store.addEventListener("change", () => this.refresh());
    this.refresh();
  }

  /** Show the results of the open workflow's nodes, and no others. */
  refresh() {
    if (!this.#started) return;
    /** @type {Map<LGraphNode, unknown>} */
    const wanted = new Map();
    for (const entry of this.store.entries(openWorkflow())) {
      const node = findNode(entry.node);
      const result = entry[this.kind.key];
      if (node && result) wanted.set(node, result);
    }
    for (const node of this.#shown.keys()) {
      if (wanted.has(node)) continue;
      this.#shown.delete(node);
      removeElement(node, this.#widget);
    }
    for (const [node, result] of wanted) this.#show(node, result);
  }

  /**
   * @param {LGraphNode} node
   * @param {unknown} result
   */
  #show(node, result) {
    const shown = hasElement(node, this.#widget) ? this.#shown.get(node) : undefined;
    if (shown?.result === result) return; // a slider stays where the user has put it
    const element = shown?.element ?? document.createElement("div");
    element.className = `paceline-${this.kind.key}`;
    element.replaceChildren(...this.kind.parts(result));
    this.#shown.set(node, { element, result });
    if (shown) return;
    addElement(node, this.#widget, element, { margin: 8, getMinHeight: () => this.kind.minHeight });
    const [width, height] = node.computeSize();
    node.setSize([Math.max(node.size[0], width, this.kind.minWidth), Math.max(node.size[1], height)]);
  }
}
