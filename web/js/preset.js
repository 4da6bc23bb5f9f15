// The preset that new nodes begin with.

import { app } from "./comfy.js";
import { comfyClassOf } from "./graph.js";

/** The nodes whose presets trade quality for speed; Compile UNet's input of this name is about something else. */
const TYPES = ["PacelineApplyToMe", "PacelineOptimizePreset"];

export const PRESET_SETTING = "Paceline.DefaultPreset";

/** Stands for what the node itself begins with. */
export const NODE_DEFAULT = "node";

/**
 * Set the preset of a new node to the user's choice. A node that is loaded, pasted or cloned gets its saved values
 * afterwards, so only new nodes are changed.
 * @param {LGraphNode} node
 */
export function applyDefaultPreset(node) {
  if (!TYPES.includes(comfyClassOf(node) ?? "")) return;
  const wanted = app.extensionManager.setting.get(PRESET_SETTING);
  const widget = node.widgets?.find((candidate) => candidate.name === "preset");
  const values = widget?.options?.values;
  if (!widget || !Array.isArray(values) || !values.includes(wanted)) return;
  own.set(node, widget.value);
  widget.value = /** @type {string} */ (wanted);
}

/** @type {WeakMap<LGraphNode, NonNullable<LGraphNode["widgets"]>[number]["value"]>} what the presets of new nodes were before */
const own = new WeakMap();

/**
 * Take the user's choice back: a node that is made for a step means what the step says, and else its own defaults.
 * @param {LGraphNode} node that is new
 */
export function withoutDefaultPreset(node) {
  const widget = node.widgets?.find((candidate) => candidate.name === "preset");
  if (widget && own.has(node)) widget.value = own.get(node);
}
