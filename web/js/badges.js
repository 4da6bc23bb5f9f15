// The badges of all nodes of the open workflow.

import { Badge } from "./badge.js";
import { app } from "./comfy.js";
import { openReport } from "./report.js";
import { Shown } from "./shown.js";

export const BADGES_SETTING = "Paceline.Badges";

const HEIGHT = 26;

/**
 * @param {import("./store.js").ActivityStore} store
 * @returns {Shown<import("./activity.js").Activity>}
 */
export function createBadges(store) {
  return new Shown(store, {
    widget: "$$paceline-badge",
    size: { margin: 4, getMinHeight: () => HEIGHT, getMaxHeight: () => HEIGHT },
    pick: ({ activity }) => (app.extensionManager.setting.get(BADGES_SETTING) === false ? undefined : activity),
    create: () => new Badge(() => openReport(store)),
  });
}
