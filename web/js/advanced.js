// On the canvas the frontend shows all advanced inputs of a node. Ours show theirs when they are asked for, as in Nodes
// 2.0. An input that is connected, or not what it is in a new node, is always seen. In both, a new node is as high as
// what it shows.

import { app } from "./comfy.js";
import { comfyClassOf, isOurType } from "./graph.js";
import { words } from "./words.js";

/** @typedef {NonNullable<LGraphNode["widgets"]>[number]} Widget */

/** Saved with the node, so that undo and a reload keep it. Missing in nodes whose height was never made to fit. */
const SHOWN = "paceline_advanced";

const SHOWN_EVERYWHERE = /** @type {any} */ ("Comfy.Node.AlwaysShowAdvancedWidgets"); // the frontend's types leave it out

/** Room for the node's dot left of its title, and as much on the right. */
const BESIDE_TITLE = 60;

/** @type {WeakMap<LGraphNode, (shown: boolean) => number>} the height that a node needs with all inputs, or without */
const heights = new WeakMap();

/** @returns {any} the frontend has no module for it */
function litegraph() {
  return /** @type {any} */ (window).LiteGraph;
}

/**
 * Fold the advanced inputs of a node of ours on the canvas, and give it the height of the rest.
 * @param {LGraphNode} node that is new
 */
export function foldAdvanced(node) {
  if (!isOurType(comfyClassOf(node))) return;
  widenToTitle(node);
  const advanced = (node.widgets ?? []).filter(({ options }) => /** @type {any} */ (options)?.advanced);
  if (!advanced.length) return;
  /** @type {boolean | null} while a height is measured: whether with all inputs */
  let all = null;
  for (const widget of advanced) {
    const { name, value: usual } = widget;
    const connected = () => node.inputs.some((input) => input.widget?.name === name && input.link != null);
    const seen = () => !litegraph().vueNodesMode && (widget.value !== usual || connected());
    const get = () => !(all ?? litegraph().vueNodesMode) && !isShown(node) && !seen(); // Nodes 2.0 fold by themselves
    Object.defineProperty(widget, "hidden", { get, set() {}, configurable: true, enumerable: true });
  }
  const { computeSize } = node;
  // The frontend gives every node that is loaded at least this size, in Nodes 2.0 too.
  node.computeSize = function (out) {
    const before = all;
    all ??= false;
    const size = computeSize.call(this, out);
    all = before;
    return size;
  };
  heights.set(node, (shown) => {
    all = shown;
    const [, height] = node.computeSize();
    all = null;
    return height;
  });
  fit(node);
  const { onConfigure } = node;
  node.onConfigure = function (saved) {
    onConfigure?.call(this, saved);
    if (saved.properties?.[SHOWN] === undefined) fit(this);
  };
}

/**
 * Make a node that has room for all its inputs as high as those that are shown, once.
 * @param {LGraphNode} node
 */
function fit(node) {
  const height = heights.get(node);
  if (!height) return;
  node.properties[SHOWN] = false;
  const left = node.size[1] - height(true);
  if (left >= 0) node.setSize([node.size[0], height(false) + left]);
}

/**
 * @param {LGraphNode} node
 * @returns {boolean} whether its advanced inputs were asked for
 */
function isShown(node) {
  return Boolean(node.properties[SHOWN]) || app.extensionManager.setting.get(SHOWN_EVERYWHERE) === true;
}

/**
 * @param {LGraphNode} node
 * @returns {MenuItems} to ask for the advanced inputs, on the canvas
 */
export function advancedMenuItems(node) {
  const height = heights.get(node);
  if (!height || litegraph().vueNodesMode) return [];
  const callback = () => {
    const left = node.size[1] - height(false);
    node.setProperty(SHOWN, !node.properties[SHOWN]);
    node.setSize([node.size[0], height(false) + Math.max(0, left)]);
    app.canvas.setDirty(true, true);
  };
  return [{ content: words(node.properties[SHOWN] ? "hideAdvanced" : "showAdvanced"), callback }];
}

/**
 * The frontend cuts a title that has no room.
 * @param {LGraphNode} node
 */
function widenToTitle(node) {
  const context = app.canvas?.ctx;
  if (!context) return;
  context.save();
  context.font = `${litegraph().NODE_TEXT_SIZE}px ${litegraph().NODE_FONT}`;
  const width = context.measureText(node.getTitle()).width + BESIDE_TITLE;
  context.restore();
  if (node.size[0] < width) node.setSize([width, node.size[1]]);
}
