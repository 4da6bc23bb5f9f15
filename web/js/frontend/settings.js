// The page "Paceline" in the frontend's settings.

import { BADGES_SETTING } from "../badges/badges.js";
import { renderCache } from "./cache.js";
import { KEEP_SETTING, renderOutcomes } from "../speed/outcomes.js";

/** @typedef {NonNullable<ComfyExtension["settings"]>} Settings */

/** @param {() => void} onBadgesChange */
export function createSettings(onBadgesChange) {
  const settings = [
    {
      id: BADGES_SETTING,
      category: ["Paceline", "Nodes", "Badges"],
      name: "Show badges on Paceline nodes",
      tooltip: "What each node did in its last run: where it was active, and why where it was not.",
      type: "boolean",
      defaultValue: true,
      // Called before the value is stored.
      onChange: () => queueMicrotask(onBadgesChange),
    },
    {
      id: KEEP_SETTING,
      category: ["Paceline", "Speed", "Keep outcomes"],
      name: "Keep what runs took",
      tooltip: "On this machine only, at most 1 MB: seconds, versions, kind of model, size, steps; no texts, names of files or pictures. The tab Speed says when a workflow got slower.",
      type: renderOutcomes,
      defaultValue: true,
    },
    {
      id: "Paceline.Cache",
      category: ["Paceline", "Compiled code", "Cache"],
      name: "Compiled code on disk",
      tooltip: "Kept between starts of ComfyUI, so that the same model need not be compiled again.",
      type: renderCache,
      defaultValue: null,
    },
  ];
  // The cast: the frontend's types list the settings of the frontend only.
  return /** @type {Settings} */ (/** @type {unknown} */ (settings));
}
