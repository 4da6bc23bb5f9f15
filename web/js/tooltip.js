// The details of a badge while the pointer is over it or it has the focus.

import { activityLines, stateText } from "./activity.js";
import { createElement } from "./elements.js";
import { direction } from "./words.js";

const ID = "paceline-tooltip";

/**
 * @param {HTMLElement} owner the element that is described
 * @param {Activity} activity
 */
export function showTooltip(owner, activity) {
  hideTooltip();
  const lines = [`${activity.title}: ${stateText(activity)}`, ...activityLines(activity)];
  const rows = lines.map((line) => createElement("div", {}, createElement("bdi", {}, line))); // the headline can be of another language
  const tooltip = createElement("div", { id: ID, role: "tooltip", className: "paceline-tooltip", dir: direction() }, ...rows);
  document.body.append(tooltip);
  owner.setAttribute("aria-describedby", ID);

  const anchor = owner.getBoundingClientRect();
  const { width, height } = tooltip.getBoundingClientRect();
  const below = anchor.bottom + 6;
  const top = below + height <= window.innerHeight ? below : anchor.top - height - 6;
  tooltip.style.left = `${Math.max(8, Math.min(anchor.left, window.innerWidth - width - 8))}px`;
  tooltip.style.top = `${Math.max(8, top)}px`;
  shown.observe(owner);
}

/** A node that is removed, folded or seen from afar takes its badge away, of which the pointer tells nothing. */
const shown = new ResizeObserver((owners) => {
  if (owners.some(({ target }) => !target.getClientRects().length)) hideTooltip();
});

/** Remove the tooltip if there is one. */
export function hideTooltip() {
  shown.disconnect();
  document.getElementById(ID)?.remove();
  document.querySelector(`[aria-describedby="${ID}"]`)?.removeAttribute("aria-describedby");
}
