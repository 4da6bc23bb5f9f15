// The few words of our own that the frontend shows, in its language: "paceline" of locales/<language>/main.json.
//
// Names of nodes, inputs, settings and commands are translated by the frontend itself.

import { app } from "./comfy.js";
import { ask } from "./server.js";

const SETTING = "Comfy.Locale";
const RIGHT_TO_LEFT = ["ar", "fa", "he"];

/** @typedef {{paceline?: Record<string, string>, pacelineReports?: Record<string, string>}} Translations */
/** @typedef {keyof typeof import("../../../locales/en/main.json")["paceline"]} Word */

/** @type {Record<string, Translations>} by language */
let languages = {};
let current = "en";

/** Tells its listeners ("change" events) that the language of the page is another one. */
export const languageChanges = new EventTarget();

/** Fetch the words once, and follow the language of the page. What has no translation is English. */
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

/** @param {Word} key */
export function words(key) {
  return wordsOf(key);
}

/**
 * @param {string} key that the server has sent, or that is made of one
 * @returns {string} its words; a key that we do not know as it is
 */
export function wordsOf(key) {
  const known = [current, "en"].map((language) => languages[language]?.paceline ?? {});
  return known.find((all) => Object.hasOwn(all, key))?.[key] ?? key;
}
