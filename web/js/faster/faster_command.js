// Where "Make this workflow faster" is found: menu, command palette, toolbar, and the context menu of samplers.

import { makeFaster } from "./faster.js";
import { isOurType } from "../frontend/graph.js";
import { words } from "../frontend/language.js";

/**
 * @param {Timeline} timeline
 * @returns {Command}
 */
export function createFasterCommand(timeline) {
  return {
    id: "Paceline.MakeFaster",
    label: "Paceline: make this workflow faster",
    icon: "pi pi-forward",
    function: () => makeFaster(timeline),
  };
}

/**
 * @param {Timeline} timeline
 * @returns {ComfyExtension["actionBarButtons"]} a button beside the frontend's own
 */
export function fasterButtons(timeline) {
  return [{ icon: "pi pi-forward", tooltip: words("faster_title"), onClick: () => void makeFaster(timeline) }];
}

/**
 * @param {LGraphNode} node
 * @param {Timeline} timeline
 * @returns {MenuItems}
 */
export function fasterMenuItems(node, timeline) {
  const takes = (node.inputs ?? []).some(({ type }) => type === "MODEL");
  const samples = takes && !(node.outputs ?? []).some(({ type }) => type === "MODEL") && !isOurType(node.type);
  return samples ? [{ content: words("faster_title"), callback: () => void makeFaster(timeline) }] : [];
}
