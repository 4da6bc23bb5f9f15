// What a node did or does, and its words for the badge and the report.

import { said } from "./headlines.js";
import { words, wordsOf } from "../frontend/language.js";

/** @param {string} message of an error, several lines */
export function failure(message) {
  const [headline, ...details] = message.trim().split("\n");
  return { state: "failed", title: "Paceline", headline, counts: {}, details };
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

/**
 * @param {Pick<Activity, "state" | "neutral">} activity
 * @returns {string} its state as a colour: green where something is faster, or as promised
 */
export function colourOf({ state, neutral }) {
  return state === "active" && neutral ? "on" : state;
}

/**
 * @param {{mode: number}} node
 * @returns {"muted" | "bypassed" | ""} how it is switched off
 */
export function offAs({ mode }) {
  return mode === 4 ? "bypassed" : mode === 2 ? "muted" : "";
}

/**
 * @param {Entry | undefined} entry of the last run
 * @param {{mode: number}} node as it is now
 * @returns {Activity | undefined} what is true now
 */
export function shownActivity(entry, node) {
  const activity = entry?.activity;
  if (!activity || !entry.stale || activity.state === "working") return activity;
  return { ...activity, state: "stale", before: [offAs(node) || "settingsChanged", ...(activity.before ?? [])] };
}

/** States in which a node has said already what it did, or why it did nothing. */
const DONE = ["active", "partly", "failed", "inactive"];

/** @type {(title: string, state: string, word: string) => Activity} where a word is all there is to say */
const only = (title, state, word) => ({ title, state, before: [word], headline: "", counts: {}, details: [] });

/** @param {Activity} activity in a run that the user has cancelled */
export function cancelled(activity) {
  const { title, state } = activity;
  return DONE.includes(state) ? { ...activity, state: "cancelled", before: ["cancelled"] } : only(title, "cancelled", "cancelled");
}

/** @param {Activity} activity in a run that has failed at some node */
export function notReached(activity) {
  return DONE.includes(activity.state) ? activity : only(activity.title, "inactive", "notReached");
}

/** @param {Activity} activity in a run whose end this page has not heard */
export function lost(activity) {
  return activity.state === "working" ? only(activity.title, "failed", "runLost") : activity;
}

/**
 * @param {Activity} activity
 * @returns {string} its headline in the language of the page
 */
export function headlineOf({ headline, phrase, before = [] }) {
  return [...before.map(wordsOf), ...(headline ? [said({ text: headline, phrase })] : [])].join(" · ");
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
  return [headlineOf(activity), ...activity.details];
}
