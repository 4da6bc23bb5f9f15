// What a node did or does, and its words for the badge, the tooltip and the report.

import { words } from "./words.js";

/** @typedef {{progress?: number | null}} Progress share that is done, 0 to 1; null if that is not known */
/** @typedef {Omit<import("./payloads").ActivityPayload, "node" | "prompt_id"> & Progress} Activity */

const OURS = "Paceline";

/** The last phase of a compilation: the run goes on with what was compiled. */
const READY = "ready";

/**
 * @param {import("./payloads").CompilePayload} payload
 * @returns {Activity}
 */
export function compileActivity({ phase, headline, seconds, graph, expected_seconds }) {
  const known = expected_seconds !== null && seconds < expected_seconds; // else it takes longer than the last time
  const counts = { graph, seconds: Math.round(seconds) };
  return {
    state: "working",
    title: OURS,
    headline,
    counts: expected_seconds === null ? counts : { ...counts, expected_seconds: Math.round(expected_seconds) },
    details: [phase],
    ...(phase !== READY && { progress: known ? seconds / expected_seconds : null }),
  };
}

/**
 * @param {string} message of an error, several lines
 * @returns {Activity}
 */
export function failure(message) {
  const [headline, ...details] = message.trim().split("\n");
  return { state: "failed", title: OURS, headline, counts: {}, details };
}

/** Values of `node.mode`. */
const MUTED = 2;
const BYPASSED = 4;

/**
 * @param {Activity} activity of the last run
 * @param {boolean} stale whether the node is set otherwise than in that run
 * @param {number} mode of the node now
 * @returns {Activity} what is true now
 */
export function shownActivity(activity, stale, mode) {
  if (!stale || activity.state === "working") return activity;
  const why = words(mode === BYPASSED ? "bypassed" : mode === MUTED ? "muted" : "settingsChanged");
  return { ...activity, state: "stale", headline: `${why} · ${activity.headline}` };
}

/** States in which a node has done something already. */
const DONE = ["active", "partly", "failed"];

/**
 * @param {Activity} activity in a run that the user has cancelled
 * @returns {Activity}
 */
export function cancelled({ state, headline, ...rest }) {
  if (!DONE.includes(state)) return { ...rest, state: "cancelled", headline: words("cancelled"), counts: {}, details: [] };
  return { ...rest, state: "cancelled", headline: `${words("cancelled")} · ${headline}` };
}

/**
 * @param {Activity} activity in a run that has failed at some node
 * @returns {Activity}
 */
export function notReached(activity) {
  if (activity.state !== "waiting" && activity.state !== "working") return activity;
  return { ...activity, state: "inactive", headline: words("notReached"), counts: {}, details: [] };
}

/**
 * @param {Activity} activity
 * @returns {string} what fits on a badge: the headline, and how often something did not go as asked
 */
export function badgeText({ headline, counts }) {
  const { fallbacks } = counts;
  if (!fallbacks) return headline;
  return `${headline} · ${fallbacks} ${words(fallbacks === 1 ? "fallback" : "fallbacks")}`;
}

/**
 * @param {Activity} activity
 * @returns {string[]} everything that is known, the important first
 */
export function activityLines({ headline, counts, details }) {
  const numbers = Object.entries(counts).map(([name, value]) => `${name.replaceAll("_", " ")}: ${numberText(value)}`);
  return [headline, ...(numbers.length ? [numbers.join(", ")] : []), ...details];
}

/**
 * @param {number} value
 * @returns {string}
 */
function numberText(value) {
  return Number.isInteger(value) || Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}
