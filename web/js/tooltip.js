// The details of a badge while the pointer is over it or it has the focus.

import { activityLines, stateText } from "./activity.js";
import { direction } from "./words.js";

const ID = "paceline-tooltip";

/**
 * @param {HTMLElement} owner the element that is described
 * @param {import("./activity.js").Activity} activity
 */
export function showTooltip(owner, activity) {
  hideTooltip();
  const tooltip = document.createElement("div");
  tooltip.id = ID;
  tooltip.role = "tooltip";
  tooltip.className = "paceline-tooltip";
  tooltip.dir = direction();
  for (const line of [`${activity.title}: ${stateText(activity)}`, ...activityLines(activity)]) {
    tooltip.append(Object.assign(document.createElement("div"), { textContent: line }));
  }
  document.body.append(tooltip);
  owner.setAttribute("aria-describedby", ID);

  const anchor = owner.getBoundingClientRect();
  const { width, height } = tooltip.getBoundingClientRect();
  const below = anchor.bottom + 6;
  const top = below + height <= window.innerHeight ? below : anchor.top - height - 6;
  tooltip.style.left = `${Math.max(8, Math.min(anchor.left, window.innerWidth - width - 8))}px`;
  tooltip.style.top = `${Math.max(8, top)}px`;
}

/** Remove the tooltip if there is one. */
export function hideTooltip() {
  document.getElementById(ID)?.remove();
  document.querySelector(`[aria-describedby="${ID}"]`)?.removeAttribute("aria-describedby");
}
