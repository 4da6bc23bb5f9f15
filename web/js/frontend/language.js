// The few words of our own that the frontend shows, in its language.
//
// Names of nodes, inputs, settings and commands are translated by the frontend itself from locales/<language>/. What is
// left is in "paceline" of locales/<language>/main.json.

import { app } from "./comfy.js";
import { ask } from "./server.js";

const ENGLISH = {
  active: "active",
  partly: "partly active",
  inactive: "not active",
  waiting: "waiting for a run",
  working: "working",
  failed: "failed",
  ran: "ran",
  unknown: "not run yet",
  cancelled: "cancelled",
  stale: "of an earlier run",
  settingsChanged: "settings changed since",
  notReached: "the run failed before this node",
  bypassed: "bypassed",
  muted: "muted",
  reportTitle: "Paceline: report",
  reportEmpty: "This workflow has no Paceline nodes. Add one from the category Paceline.",
  copy: "Copy",
  copied: "Copied",
  close: "Close",
  showReport: "Press Enter for the report.",
  fallback: "fallback",
  fallbacks: "fallbacks",
  cacheUnknown: "unknown",
  cacheEmpty: "empty",
  cacheClear: "Clear",
  cacheCleared: "Compiled code was deleted.",
  baseline: "Baseline",
  optimized: "Optimized",
  slider: "Part of the picture that shows the baseline",
  mode_slider: "Slider",
  mode_side: "Side by side",
  mode_heat: "Difference",
  mode_blink: "Blink",
  noDifference: "No difference",
  fullscreen: "Full screen",
  previous: "Previous picture",
  next: "Next picture",
  details: "Details",
  faster: "faster",
  slower: "slower",
  notProved: "No difference in time was proved",
  quality_identical: "identical picture",
  quality_not_visible: "no visible difference",
  quality_hardly_visible: "hardly visible difference",
  quality_visible: "visible difference",
  quality_another_picture: "another picture",
  quality_no_picture: "no picture",
  step: "One step",
  sampling: "One sampling run",
  eachRound: "every round, with the median",
  speedup: "Speed-up",
  plain: "Plain model",
  loading: "loading",
  textEncoding: "text encoding",
  compiling: "compiling",
  controlnet: "ControlNet",
  samplingRun: "sampling",
  decoding: "VAE",
  saving: "saving",
  measuring: "measuring",
  otherNodes: "other nodes",
  attention: "attention",
  linear: "linear layers",
  convolution: "convolutions",
  norm_elementwise: "norms and elementwise",
  copies: "copies",
  gaps: "waiting for Python",
  wholeRun: "Whole run",
  speedEmpty: "Run a workflow to see where its time goes. The node Profile shows the parts of a single step.",
  left: "left",
  speedTab: "Speed",
  off: "off",
  noBaseline: "no baseline yet",
  moreRounds: "%n more rounds",
  againstOff: "against off",
  tooFewRuns: "too few runs to compare",
  noneActive: "no node was active",
  offMeans: "Off: without Paceline, from earlier runs on this machine with the same model, size, batch and sampler.",
  seedShare: "Difference, as a share of a seed change",
  cells: "cells",
  plots: "Plots of this study and others:",
  about: "about",
  steps: "steps",
  levels: "levels",
  expand: "Turn into single nodes",
  expandAfterRun: "Turn into single nodes (run it first)",
  faster_title: "Make this workflow faster",
  fasterChoice: "How much may the picture change?",
  choice_lossless: "Same picture",
  choice_lossless_why: "Only rounding may differ.",
  choice_balanced: "Hardly visible",
  choice_balanced_why: "A little fine detail for speed.",
  choice_fast: "Fastest",
  choice_fast_why: "Detail may change where you can see it side by side.",
  fasterRun: "Run once and look",
  fasterMore: "Look for more",
  fasterWaits: "The run waits for its turn in the queue.",
  fasterPictures: "How many pictures will you draw?",
  picturesOne: "One",
  picturesSome: "About 20",
  picturesMany: "All day",
  fasterKeeps: "This run draws your picture as usual. Up to 256 MB of it stay in memory until the answer, and nowhere else.",
  fasterRuns: "Your workflow runs unchanged, and is measured.",
  fasterProbes: "Trying candidates, for at most half a minute or as long as the run took.",
  fasterProves: "Drawing the same seeds plain and faster.",
  proofCount: "The same seeds plain and faster: picture %n of %t, about %s s left.",
  fasterFailed: "This could not be measured. Close this dialog, run the workflow to see the error, and try again.",
  fasterProve: "Prove it (about %s s)",
  expectedWas: "expected %e, was %w",
  expectedBusy: "expected %e; the machine was busy",
  outcomesExport: "Export",
  outcomesDelete: "Delete",
  leverLook: "Switch it on and look",
  leverRuns: "Your workflow runs with this change, once.",
  leverBefore: "before",
  leverAfter: "after",
  leverBack: "Back",
  stop: "Stop",
  cancel: "Cancel",
  keep: "Keep",
  worstPicture: "The farthest picture: before on the left, after on the right",
  runLost: "The connection to the server was lost, and this run with it.",
  wonBack: "compiling took %s s once; runs until the nodes save that: %n",
  difference: "Difference to the baseline",
};

const SETTING = "Comfy.Locale";
const RIGHT_TO_LEFT = ["ar", "fa", "he"];

/** @typedef {{paceline?: Record<string, string>, pacelineReports?: Record<string, string>}} Translations */

/** @type {Record<string, Translations>} by language */
let languages = {};
let current = "en";

/** Tells its listeners ("change" events) that the language of the page is another one. */
export const languageChanges = new EventTarget();

/** Fetch the translations once, and follow the language of the page. English stays where there are none. */
export async function loadWords() {
  languages = await ask("/i18n").catch(() => ({}));
  current = String(app.extensionManager.setting.get(SETTING) ?? "en");
  app.ui?.settings?.addEventListener(`${SETTING}.change`, (event) => {
    current = String(/** @type {CustomEvent} */ (event).detail.value ?? "en"); // the setting has the old one still
    languageChanges.dispatchEvent(new Event("change"));
  });
}

/** @returns {string} of the page, e.g. "es" */
export function language() {
  return current;
}

/** @returns {"rtl" | "ltr"} how the language of the page is written */
export function direction() {
  return RIGHT_TO_LEFT.includes(current.split("-")[0]) && hasReports() ? "rtl" : "ltr";
}

/** @returns {boolean} whether there are translations of reports in the language of the page */
export function hasReports() {
  return languages[current]?.pacelineReports !== undefined;
}

/**
 * @param {string} template of a report
 * @returns {string | null} it in the language of the page; null if there is none
 */
export function reportIn(template) {
  const known = languages[current]?.pacelineReports ?? {};
  return Object.hasOwn(known, template) ? known[template] : null;
}

/** @param {keyof typeof ENGLISH} key */
export function words(key) {
  return languages[current]?.paceline?.[key] ?? ENGLISH[key];
}

/**
 * @param {string} key that the server has sent, or that is made of one
 * @returns {string} its words; a key that we do not know as it is
 */
export function wordsOf(key) {
  return Object.hasOwn(ENGLISH, key) ? words(/** @type {keyof typeof ENGLISH} */ (key)) : key;
}
