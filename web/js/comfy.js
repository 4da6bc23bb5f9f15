// The only place that knows where ComfyUI's own modules are.

export { app } from "../../../scripts/app.js";
export { api } from "../../../scripts/api.js";

/**
 * @param {string} type
 * @returns {import("./graph.js").LGraphNode | null} a new node that is in no graph yet; null for an unknown type
 */
export function createNode(type) {
  return /** @type {any} */ (window).LiteGraph.createNode(type); // the frontend has no module for it
}

/**
 * What the frontend adds to litegraph's nodes; its published types leave it out.
 * @typedef {object} DomWidget
 * @property {HTMLElement} element
 * @property {boolean} [serialize] whether the workflow file has its value
 * @property {() => void} [onRemove]
 *
 * @typedef {object} DomWidgetOptions
 * @property {boolean} serialize whether the prompt has its value
 * @property {boolean} hideInPanel
 * @property {number} margin
 * @property {() => number} getMinHeight
 * @property {() => number} [getMaxHeight]
 *
 * @typedef {{addDOMWidget(name: string, type: string, element: HTMLElement, options: DomWidgetOptions): DomWidget}}
 *   DomWidgetHost
 */

/**
 * Show an element in a node, in both renderers. Neither the workflow file nor the prompt knows of it.
 * @param {import("./graph.js").LGraphNode} node
 * @param {string} name
 * @param {HTMLElement} element
 * @param {Omit<DomWidgetOptions, "serialize" | "hideInPanel">} size
 */
export function addElement(node, name, element, size) {
  const host = /** @type {DomWidgetHost} */ (/** @type {unknown} */ (node));
  const widget = host.addDOMWidget(name, name, element, { serialize: false, hideInPanel: true, ...size });
  widget.serialize = false;
}

/**
 * @param {import("./graph.js").LGraphNode} node
 * @param {string} name
 * @returns {boolean} whether the node still has it: moving a node into a subgraph takes it away
 */
export function hasElement(node, name) {
  return node.widgets?.some((widget) => widget.name === name) ?? false;
}

/**
 * @param {import("./graph.js").LGraphNode} node
 * @param {string} name
 */
export function removeElement(node, name) {
  const widgets = /** @type {DomWidget[] | undefined} */ (/** @type {unknown} */ (node.widgets));
  const index = node.widgets?.findIndex((widget) => widget.name === name) ?? -1;
  if (!widgets || index < 0) return;
  widgets[index].onRemove?.();
  widgets.splice(index, 1);
}
