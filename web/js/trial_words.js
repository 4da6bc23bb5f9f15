// What a trial has found, in words.

import { number } from "./said.js";
import { words } from "./words.js";

/**
 * @param {import("./trial_memory.js").Outcome} outcome
 * @returns {string} e.g. "1.62x faster, difference 1/14 of a seed change"
 */
export function outcomeWords({ best, once, saves }) {
  if (!best) return words("trialNothing");
  const { speedup, quality, seed_share } = best;
  const parts = [`${number(speedup, ".2f")}x ${words("faster")}`];
  if (quality === "identical") parts.push(words("quality_identical"));
  else if (seed_share) parts.push(shareWords(seed_share));
  if (once > 1 && saves > 0) parts.push(filled("paysAfter", once, saves));
  return parts.join(", ");
}

/**
 * @param {number} share of what another seed changes
 * @returns {string} e.g. "difference 1/14 of a seed change"
 */
export function shareWords(share) {
  const said = share > 0.35 ? number(share, ".2g") : `1/${Math.min(100, Math.round(1 / Math.max(share, 0.01)))}`;
  return words("shareOfSeed").replace("%s", said);
}

/**
 * @param {Pick<Judged, "kept" | "once" | "saves"> | undefined} measured on this machine before
 * @returns {string} what a node costs once, and from how many pictures on it pays
 */
export function costWords(measured) {
  if (!measured) return words("costUnknown");
  const { kept, once, saves } = measured;
  if (!kept || saves <= 0) return words("costNoGain");
  return once > 1 ? filled("paysAfter", once, saves) : words("costNothing").replace("%s", number(saves, ".2g"));
}

/**
 * @param {"paysAfter" | "wonBack"} key
 * @param {number} once seconds
 * @param {number} saves seconds of each picture or run
 * @param {string} [about] stands before the number where it is not certain
 */
export function filled(key, once, saves, about = "") {
  return words(key).replace("%s", number(once, ".0f")).replace("%n", `${about}${Math.ceil(once / saves)}`);
}
