// Sentences that the server sends as a template and its values (core/phrases.py), said in the language of the page.

import { hasReports, language, reportIn } from "./words.js";

/** @typedef {import("./payloads").Phrase} Phrase */

const PLACEHOLDER = /\{(\w+)(?::([^{}|]*))?(?:\|([^{}]*))?\}/g;

/** A format of Python's: `#` keeps zeros at the end, then digits, then what they count. */
const FORM = /^(#?)(?:\.(\d+))?([fg%]?)$/;

const FULL_STOP = /[.。]+$/;

/** Plurals of all languages, in the order in which a translation names their words. */
const PLURALS = ["zero", "one", "two", "few", "many", "other"];

/**
 * @param {string} english
 * @param {Phrase} [phrase] the same as data
 * @returns {string} it in the language of the page; what has no translation stays English
 */
export function said(english, phrase) {
  if (!hasReports()) return english;
  const whole = phrase ?? english;
  return typeof whole === "string" ? (reportIn(whole) ?? whole) : fill(whole);
}

/**
 * @param {string[]} english
 * @param {Phrase[]} [phrases]
 * @returns {string[]}
 */
export function allSaid(english, phrases) {
  return english.map((line, index) => said(line, phrases?.[index]));
}

/**
 * @param {Phrase} phrase inside of another one a text stays what it is: a name, a file, what somebody has typed
 * @returns {string}
 */
function fill(phrase) {
  if (typeof phrase === "number") return number(phrase);
  if (typeof phrase === "string") return phrase;
  const { template, values, starts, clause } = phrase;
  const translated = reportIn(template);
  const text = (translated ?? template).replace(PLACEHOLDER, (place, name, form, words) => {
    if (!Object.hasOwn(values, name)) return place; // braces in a text that somebody has typed
    const value = values[name];
    if (words !== undefined) return counted(Number(value), words.split("|"), translated === null ? "en" : language());
    return typeof value === "number" ? number(value, form) : fill(value);
  });
  const bare = clause ? text.replace(FULL_STOP, "") : text;
  return starts ? capital(bare) : bare;
}

/**
 * @param {string} text
 * @returns {string} it with a capital at its start; a name that a word begins with (fp32_reference) stays what it is
 */
export function capitalised(text) {
  return /^\p{Ll}+[\s:,]/u.test(`${text} `) ? capital(text) : text;
}

/** @param {string} text */
function capital(text) {
  return text.slice(0, 1).toLocaleUpperCase(language()) + text.slice(1);
}

/**
 * @param {number} count
 * @param {string[]} choices one for each plural that the language has; the last one stands for the rest
 * @param {string} of the language
 * @returns {string}
 */
function counted(count, choices, of) {
  const rules = new Intl.PluralRules(of);
  const known = PLURALS.filter((plural) => rules.resolvedOptions().pluralCategories.includes(/** @type {any} */ (plural)));
  return choices[Math.min(known.indexOf(rules.select(count)), choices.length - 1)];
}

/**
 * @param {number} value
 * @param {string} [form] as in Python: ".2f", ".3g", ".0%"
 * @returns {string} as the language writes it, in the digits 0 to 9
 */
export function number(value, form = "") {
  const [, keep, digits, kind] = FORM.exec(form) ?? [];
  const places = { minimumFractionDigits: Number(digits ?? 0), maximumFractionDigits: Number(digits ?? 6) };
  const significant = { maximumSignificantDigits: Number(digits ?? 6), ...(keep && { minimumSignificantDigits: Number(digits) }) };
  return new Intl.NumberFormat(language(), {
    numberingSystem: "latn",
    useGrouping: false,
    ...(kind === "g" ? significant : places),
    ...(kind === "%" && { style: "percent" }),
  }).format(value);
}
