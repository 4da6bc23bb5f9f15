// Inputs that a preset takes the place of are switched off while it is chosen, so that nobody sets what does nothing.

import { comfyClassOf } from "./graph.js";

/** By the node's id: the input that decides, the value that leaves the others alone, and the others. */
const REPLACED = {
  PacelineApplyToMe: { by: "preset", unless: "custom", inputs: ["method", "ratio", "max_downsample", "residual"] },
};

/**
 * Keep the inputs of a node on or off, as its preset says.
 * @param {LGraphNode} node that is new
 */
export function switchIgnored(node) {
  const rule = REPLACED[/** @type {keyof typeof REPLACED} */ (comfyClassOf(node))];
  const deciding = node.widgets?.find((widget) => widget.name === rule?.by);
  if (!rule || !deciding) return;
  const show = () => {
    for (const widget of node.widgets ?? []) {
      if (rule.inputs.includes(widget.name)) widget.disabled = deciding.value !== rule.unless;
    }
    node.setDirtyCanvas?.(true, true);
  };
  const { callback } = deciding;
  deciding.callback = function (...values) {
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
