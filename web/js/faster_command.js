// Where "Make this workflow faster" is found: menu, command palette, toolbar, and the context menu of samplers.

import { makeFaster } from "./faster.js";
import { isOurType } from "./graph.js";
import { words } from "./words.js";

/** @returns {Command} */
export function createFasterCommand() {
  return {
    id: "Paceline.MakeFaster",
    label: "Paceline: make this workflow faster",
    icon: "pi pi-forward",
    function: () => makeFaster(),
  };
}

/** @returns {Extension["actionBarButtons"]} a button beside the frontend's own */
export function fasterButtons() {
  return [{ icon: "pi pi-forward", tooltip: words("faster_title"), onClick: () => void makeFaster() }];
}

/**
 * @param {LGraphNode} node
 * @returns {MenuItems}
 */
export function fasterMenuItems(node) {
  const takes = (node.inputs ?? []).some(({ type }) => type === "MODEL");
  const samples = takes && !(node.outputs ?? []).some(({ type }) => type === "MODEL") && !isOurType(node.type);
  return samples ? [{ content: words("faster_title"), callback: () => void makeFaster() }] : [];
}
