// The badges of all nodes of the open workflow.

import { Badge } from "./badge.js";
import { app } from "../frontend/comfy.js";
import { openReport } from "./report.js";
import { Shown } from "./in_nodes.js";

export const BADGES_SETTING = "Paceline.Badges";

const HEIGHT = 26;

/** @returns {boolean} whether the user wants to see badges and chips */
export function showsBadges() {
  return app.extensionManager.setting.get(BADGES_SETTING) !== false;
}

/** @param {ActivityStore} store */
export function createBadges(store) {
  return new Shown(store, {
    widget: "$$paceline-badge",
    size: { margin: 4, getMinHeight: () => HEIGHT, getMaxHeight: () => HEIGHT },
    pick: (entry) => (entry.activity && showsBadges() ? entry : undefined),
    create: () => new Badge(() => openReport(store)),
  });
}
