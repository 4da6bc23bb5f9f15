// What we show in the nodes of the open workflow: added, renewed and taken away as the store says.
//
// It is a DOM widget, because that is what both renderers of the frontend show (the list `node.badges` is copied by the
// Vue renderer when the node is made, and has no details on hover in either). It is never saved.

import { addElement, app, removeElement } from "../frontend/comfy.js";
import { findNode, openWorkflow } from "../frontend/graph.js";
import { languageChanges } from "../frontend/language.js";

/**
 * What one node shows.
 * @template Value
 * @typedef {object} View
 * @property {HTMLElement} element
 * @property {(value: Value, node: LGraphNode) => void} show called with each new value, and in another language
 * @property {(node: LGraphNode) => void} [added] called when it stands in the node
 */

/**
 * @template Value
 * @typedef {object} Kind
 * @property {string} widget name of the widget
 * @property {Parameters<typeof addElement>[3]} size of the widget
 * @property {(entry: Entry) => Value | undefined} pick what of an entry is shown, if anything
 * @property {() => View<Value>} create
 * @property {typeof findNode} [find] by execution id, if not a node of ours
 */

/** @template Value */
export class Shown {
  /** @type {Map<LGraphNode, View<Value>>} */
  #views = new Map();
  /** @type {WeakMap<LGraphNode, Value>} what they show */
  #values = new WeakMap();
  #started = false;
  #find;

  /**
   * @param {ActivityStore} store
   * @param {Kind<Value>} kind
   */
  constructor(store, kind) {
    this.store = store;
    this.kind = kind;
    this.#find = kind.find ?? findNode;
  }

  /** Begin, once the frontend has a graph and the settings have their values. */
  start() {
    this.#started = true;
    this.store.addEventListener("change", (event) => this.#changed(/** @type {CustomEvent} */ (event).detail));
    languageChanges.addEventListener("change", () => {
      this.#values = new WeakMap();
      this.refresh();
    });
    this.refresh();
  }

  /** @param {string[] | null} nodes execution ids of those that have news; null for all */
  #changed(nodes) {
    if (!nodes) return this.refresh();
    for (const executionId of nodes) {
      const entry = this.store.entry(openWorkflow(), executionId);
      const value = entry && this.kind.pick(entry);
      const node = value && this.#find(executionId);
      if (value && node) this.#show(node, value);
    }
  }

  /** Show what the store knows about the open workflow, and nothing else. */
  refresh() {
    if (!this.#started) return;
    /** @type {Map<LGraphNode, Value>} */
    const wanted = new Map();
    for (const entry of this.store.entries(openWorkflow())) {
      const value = this.kind.pick(entry);
      // A node inside of a subgraph that is used twice has two execution ids: it shows what it did last.
      const node = value && this.#find(entry.node);
      if (value && node) wanted.set(node, value);
    }
    for (const node of this.#views.keys()) {
      if (wanted.has(node)) continue;
      this.#views.delete(node);
      this.#values.delete(node);
      removeElement(node, this.kind.widget);
      redraw();
    }
    for (const [node, value] of wanted) this.#show(node, value);
  }

  /**
   * @param {LGraphNode} node
   * @param {Value} value that is shown once: a slider stays where the user has put it
   */
  #show(node, value) {
    const view = this.#viewOf(node);
    if (this.#values.get(node) === value) return;
    this.#values.set(node, value);
    view.show(value, node);
  }

  /** @param {LGraphNode} node */
  #viewOf(node) {
    const existing = this.#views.get(node);
    // Moving a node into a subgraph takes its elements away.
    if (existing && node.widgets?.some(({ name }) => name === this.kind.widget)) return existing;
    const view = existing ?? this.kind.create();
    this.#views.set(node, view);
    addElement(node, this.kind.widget, view.element, this.kind.size);
    view.added?.(node);
    redraw();
    return view;
  }
}

/** Let the canvas make room, or take it back. What changes inside of an element needs no drawing of all nodes. */
function redraw() {
  app.canvas?.setDirty(true, true);
}
