// The badges of all nodes of the open workflow.
//
// A badge is a DOM widget, because that is what both renderers of the frontend show (the list `node.badges` is copied
// by the Vue renderer when the node is made, and has no details on hover in either). It is never saved.

import { addElement, app, hasElement, removeElement } from "./comfy.js";
import { Badge } from "./badge.js";
import { findNode, openWorkflow } from "./graph.js";
import { openReport } from "./report.js";
import { hideTooltip } from "./tooltip.js";
import { words } from "./words.js";

/** @typedef {import("./graph.js").LGraphNode} LGraphNode */

export const BADGES_SETTING = "Paceline.Badges";

const WIDGET = "$$paceline-badge";
const HEIGHT = 26;
const MARGIN = 4;

/** Values of `node.mode`. */
const MUTED = 2;
const BYPASSED = 4;

export class Badges {
  /** @type {Map<LGraphNode, Badge>} */
  #shown = new Map();
  #started = false;

  /** @param {import("./store.js").ActivityStore} store */
  constructor(store) {
    this.store = store;
  }

  /** Begin, once the frontend has a graph and the settings have their values. */
  start() {
    this.#started = true;
    this.store.addEventListener("change", () => this.refresh());
    this.refresh();
  }

  /** Show what the store knows about the open workflow, and nothing else. */
  refresh() {
    if (!this.#started) return;
    const on = app.extensionManager.setting.get(BADGES_SETTING) !== false;
    /** @type {Map<LGraphNode, import("./store.js").Activity>} */
    const wanted = new Map();
    for (const { node: executionId, activity } of on ? this.store.entries(openWorkflow()) : []) {
      // A node inside of a subgraph that is used twice has two execution ids: it shows what it did last.
      const node = findNode(executionId);
      if (node && activity) wanted.set(node, activity);
    }
    for (const node of this.#shown.keys()) {
      if (!wanted.has(node)) this.#remove(node);
    }
    for (const [node, activity] of wanted) this.#badgeOf(node).show(activity, modeWords(node));
    app.canvas?.setDirty(true, true);
  }

  /**
   * @param {LGraphNode} node
   * @returns {Badge}
   */
  #badgeOf(node) {
    const existing = this.#shown.get(node);
    if (existing && hasElement(node, WIDGET)) return existing;
    const badge = new Badge(() => openReport(this.store));
    addElement(node, WIDGET, badge.element, {
      margin: MARGIN,
      getMinHeight: () => HEIGHT,
      getMaxHeight: () => HEIGHT,
    });
    this.#shown.set(node, badge);
    return badge;
  }

  /** @param {LGraphNode} node */
  #remove(node) {
    this.#shown.delete(node);
    hideTooltip();
    removeElement(node, WIDGET);
  }
}

/**
 * @param {LGraphNode} node
 * @returns {string} that the node is switched off now, whatever it did in its last run
 */
function modeWords(node) {
  if (node.mode === BYPASSED) return words("bypassed");
  return node.mode === MUTED ? words("muted") : "";
}
