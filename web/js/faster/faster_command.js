// Where "Make this workflow faster" is found: menu, command palette and toolbar.

import { makeFaster } from "./faster.js";
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
