// What a node did or does, and its words for the badge, the tooltip and the report.

import { allSaid, number, said } from "./said.js";
import { words, wordsOf } from "./words.js";

/**
 * @typedef {object} More
 * @property {number | null} [progress] share that is done, 0 to 1; null if that is not known
 * @property {string[]} [before] keys of words that stand before the headline
 *
 * @typedef {import("./payloads").ActivityPayload} Payload
 * @typedef {Omit<Payload, "node" | "prompt_id" | "phrases"> & Partial<Pick<Payload, "phrases">> & More} Activity without
 *   phrases where the message is of ComfyUI or of torch
 */

const OURS = "Paceline";

/** The last phase of a compilation: the run goes on with what was compiled. */
const READY = "ready";

/**
 * @param {import("./payloads").CompilePayload} payload
 * @returns {Activity}
 */
export function compileActivity({ phase, headline, phrases, seconds, graph, expected_seconds }) {
  const known = expected_seconds !== null && seconds < expected_seconds; // else it takes longer than the last time
  const counts = { graph, seconds: Math.round(seconds) };
  return {
    state: "working",
    title: OURS,
    headline,
    counts: expected_seconds === null ? counts : { ...counts, expected_seconds: Math.round(expected_seconds) },
    details: [phase],
    phrases,
    ...(phase !== READY && { progress: known ? seconds / expected_seconds : null }),
  };
}

/**
 * @param {string} message of an error, several lines
 * @param {Activity} [told] what the node has said last
 * @returns {Activity} the same, in other languages too where it is an error of ours
 */
export function failure(message, told) {
  if (told?.state === "failed" && told.headline === message.trim()) return told;
  const [headline, ...details] = message.trim().split("\n");
  return { state: "failed", title: OURS, headline, counts: {}, details };
}

/** Titles of nodes that change no model: for them the other states are only colours. */
const MEASURE = ["Compare Models", "Benchmark Sweep", "Profile", "Save int8 Model"];

/**
 * @param {Pick<Activity, "title" | "state">} activity
 * @returns {string} its state in words
 */
export function stateText({ title, state }) {
  return wordsOf(MEASURE.includes(title) && ["active", "partly", "inactive"].includes(state) ? "ran" : state);
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
  const why = mode === BYPASSED ? "bypassed" : mode === MUTED ? "muted" : "settingsChanged";
  return { ...activity, state: "stale", before: [why, ...(activity.before ?? [])] };
}

/** States in which a node has done something already. */
const DONE = ["active", "partly", "failed"];

/**
 * @param {Activity} activity in a run that the user has cancelled
 * @returns {Activity}
 */
export function cancelled(activity) {
  return DONE.includes(activity.state) ? { ...activity, ...ended("cancelled") } : { title: activity.title, ...nothing("cancelled") };
}

/**
 * @param {Activity} activity in a run that has failed at some node
 * @returns {Activity}
 */
export function notReached(activity) {
  if (activity.state !== "waiting" && activity.state !== "working") return activity;
  return { title: activity.title, ...nothing("notReached"), state: "inactive" };
}

/**
 * @param {string} state
 * @returns {{state: string, before: string[]}}
 */
function ended(state) {
  return { state, before: [state] };
}

/**
 * @param {string} why the key of words that are all there is to say
 * @returns {Omit<Activity, "title">}
 */
function nothing(why) {
  return { ...ended(why), headline: "", counts: {}, details: [] };
}

/**
 * @param {Activity} activity
 * @returns {string} its headline in the language of the page
 */
export function headlineOf({ headline, phrases, before = [] }) {
  return [...before.map(wordsOf), ...(headline ? [said(headline, phrases?.headline)] : [])].join(" · ");
}

/**
 * @param {Activity} activity
 * @returns {string} what fits on a badge: the headline, and how often something did not go as asked
 */
export function badgeText(activity) {
  const { fallbacks } = activity.counts;
  const headline = headlineOf(activity);
  if (!fallbacks) return headline;
  return `${headline} · ${fallbacks} ${words(fallbacks === 1 ? "fallback" : "fallbacks")}`;
}

/**
 * @param {Activity} activity
 * @returns {string[]} everything that is known, the important first
 */
export function activityLines(activity) {
  const { counts, details, phrases } = activity;
  const numbers = Object.entries(counts).map(([name, value]) => `${said(name.replaceAll("_", " "))}: ${numberText(value)}`);
  return [headlineOf(activity), ...(numbers.length ? [numbers.join(", ")] : []), ...allSaid(details, phrases?.details)];
}

/**
 * @param {number} value
 * @returns {string}
 */
function numberText(value) {
  return number(value, Number.isInteger(value) || Math.abs(value) >= 100 ? ".0f" : ".3g");
}
