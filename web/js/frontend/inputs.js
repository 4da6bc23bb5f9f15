// Inputs of our nodes: LiteGraph folds the advanced ones, and those that a preset takes the place of are switched off.

import { app } from "./comfy.js";
import { comfyClassOf, isOurType } from "./graph.js";

const SHOWN_EVERYWHERE = /** @type {any} */ ("Comfy.Node.AlwaysShowAdvancedWidgets"); // the frontend's types leave it out

/** Room for the node's dot left of its title, and as much on the right. */
const BESIDE_TITLE = 60;

/**
 * Fold the advanced inputs of a node of ours, and give it the height of the rest. Where an input is connected, or is not
 * what it is in a new node, the saved node shows them all.
 * @param {LGraphNode} node that is new
 */
export function foldAdvanced(node) {
  if (!isOurType(comfyClassOf(node))) return;
  widenToTitle(node);
  if (!node.isWidgetVisible || !node.expandToFitContent) return; // the frontend shows all of them
  const advanced = (node.widgets ?? []).filter(({ options }) => /** @type {any} */ (options)?.advanced);
  if (!advanced.length) return;
  const usual = advanced.map(({ value }) => value);
  for (const widget of advanced) widget.advanced = true;
  if (app.extensionManager.setting.get(SHOWN_EVERYWHERE)) node.showAdvanced = true;
  // The frontend's own keeps room for inputs that are folded.
  node.getLayoutWidgets = function () {
    return (this.widgets ?? []).filter((widget) => this.isWidgetVisible(widget));
  };
  // Called when the inputs are folded or unfolded; the frontend's own never makes a node smaller.
  node.expandToFitContent = function () {
    const [width, height] = this.computeSize();
    this.setSize([Math.max(this.size[0], width), height]);
  };
  node.expandToFitContent();
  const { onConfigure } = node;
  node.onConfigure = function (saved) {
    onConfigure?.call(this, saved);
    const changed = advanced.some(({ value }, index) => value !== usual[index]);
    const connected = this.inputs.some(({ widget, link }) => link != null && advanced.some(({ name }) => name === widget?.name));
    if (changed || connected) this.showAdvanced = true;
    this.expandToFitContent();
  };
}

/**
 * The frontend cuts a title that has no room.
 * @param {LGraphNode} node
 */
function widenToTitle(node) {
  const context = app.canvas?.ctx;
  if (!context) return;
  const { NODE_TEXT_SIZE = 14, NODE_FONT = "sans-serif" } = /** @type {any} */ (window).LiteGraph ?? {}; // the frontend has no module for it
  context.save();
  context.font = `${NODE_TEXT_SIZE}px ${NODE_FONT}`;
  const width = context.measureText(node.getTitle()).width + BESIDE_TITLE;
  context.restore();
  if (node.size[0] < width) node.setSize([width, node.size[1]]);
}

/** What a preset of Apply ToMe sets. */
const PRESET_SETS = ["method", "ratio", "max_downsample", "residual"];

/**
 * Keep the inputs of Apply ToMe on or off, as its preset says.
 * @param {LGraphNode} node that is new
 */
export function switchIgnored(node) {
  const preset = comfyClassOf(node) === "PacelineApplyToMe" && node.widgets?.find(({ name }) => name === "preset");
  if (!preset) return;
  const show = () => {
    for (const widget of node.widgets ?? []) {
      if (PRESET_SETS.includes(widget.name)) widget.disabled = preset.value !== "custom";
    }
    node.setDirtyCanvas?.(true, true);
  };
  const { callback } = preset;
  preset.callback = function (...values) {
    callback?.apply(this, values);
    show();
  };
  const { onConfigure } = node;
  node.onConfigure = function (saved) {
    onConfigure?.call(this, saved);
    show();
  };
  show();
}
