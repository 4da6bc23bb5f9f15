// Headlines, which the server sends as a template and its values too (core/phrases.py), in the language of the page.

import { hasReports, language, reportIn } from "../frontend/language.js";

const PLACEHOLDER = /\{(\w+)(?::([^{}|]*))?(?:\|([^{}]*))?\}/g;

/** A format of Python's: `#` keeps zeros at the end, then digits, then what they count. */
const FORM = /^(#?)(?:\.(\d+))?([fg%]?)$/;

/** Plurals of all languages, in the order in which a translation names their words. */
const PLURALS = ["zero", "one", "two", "few", "many", "other"];

/**
 * @param {{text: string, phrase?: Phrase}} told an English text, and the same as data
 * @returns {string} it in the language of the page; what has no translation stays English
 */
export function said({ text, phrase }) {
  return phrase === undefined || !hasReports() ? text : fill(phrase);
}

/**
 * @param {Phrase} phrase a text stays what it is: a name, a file, what somebody has typed
 * @returns {string}
 */
function fill(phrase) {
  if (typeof phrase === "number") return number(phrase);
  if (typeof phrase === "string") return phrase;
  const { template, values } = phrase;
  const translated = reportIn(template);
  return (translated ?? template).replace(PLACEHOLDER, (place, name, form, words) => {
    if (!Object.hasOwn(values, name)) return place; // braces in a text that somebody has typed
    const value = values[name];
    if (words !== undefined) return counted(Number(value), words.split("|"), translated === null ? "en" : language());
    return typeof value === "number" ? number(value, form) : fill(value);
  });
}

/**
 * @param {number} count
 * @param {string[]} choices one for each plural that the language has; the last one stands for the rest
 * @param {string} of the language
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
