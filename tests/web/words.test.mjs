// What the page says: our words and the server's headlines, in the language of the page.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { afterEach, before, test } from "node:test";
import { api, speak } from "./comfyui.mjs";
import { badgeText, colourOf, headlineOf, shownActivity, stateText } from "../../web/js/badges/activity.js";
import { againstText, wonBackText } from "../../web/js/speed/chips.js";
import { finding } from "../../web/js/compare/comparisons.js";
import { reportParts } from "../../web/js/badges/results.js";
import { number, said } from "../../web/js/badges/headlines.js";
import { direction, languageChanges, loadWords, words, wordsOf } from "../../web/js/frontend/language.js";

before(async () => {
  const main = (name) => JSON.parse(readFileSync(new URL(`../../locales/${name}/main.json`, import.meta.url)));
  api.answers["/i18n"] = Object.fromEntries(["ar", "en", "es", "ja"].map((name) => [name, main(name)]));
  await loadWords();
});
afterEach(() => speak("en"));

test("words follow the language at once, and what has no translation stays English", () => {
  let told = 0;
  languageChanges.addEventListener("change", () => told++, { once: true });
  speak("es");
  assert.deepEqual([told, words("active"), direction()], [1, "activo", "ltr"]);
  speak("ar");
  assert.deepEqual([words("active"), direction()], ["فعّال", "rtl"]);
  speak("he"); // written from the right, but nothing of ours is translated
  assert.deepEqual([words("active"), direction()], ["active", "ltr"]);
  assert.equal(wordsOf("toString"), "toString");
});

test("a headline is translated with its values, in the language's plurals and digits", () => {
  const blocks = { template: "self-attention blocks", values: {} };
  const phrase = { template: "active in {used} of {total} {places}", values: { used: 3, total: 10, places: blocks } };
  const english = "active in 3 of 10 self-attention blocks";
  assert.equal(said({ text: english, phrase }), english);
  speak("es");
  assert.equal(said({ text: english, phrase }), "activo en 3 de 10 bloques de autoatención");
  assert.equal(said({ text: "an error's words" }), "an error's words");
  const graphs = (count) => said({ text: "", phrase: { template: "{count} {count|graph|graphs}", values: { count } } });
  assert.deepEqual([graphs(1), graphs(2)], ["1 grafo", "2 grafos"]);
  const untranslated = { template: "{count} {count|egg|eggs} in {seconds:.2f} s", values: { count: 1, seconds: 2.5 } };
  assert.equal(said({ text: "", phrase: untranslated }), "1 egg in 2,50 s");
  speak("ja");
  assert.equal(graphs(3).replace("3", ""), graphs(1).replace("1", ""));
});

test("numbers have Python's forms, in the digits 0 to 9", () => {
  const forms = [[1.5, ".2f"], [1234.5, ".0f"], [0.333, ".0%"], [0.30049, "#.3g"], [0.3, "#.3g"], [0.3, ".3g"]];
  const shown = () => forms.map(([value, form]) => number(value, form));
  assert.deepEqual(shown(), ["1.50", "1235", "33%", "0.300", "0.300", "0.3"]);
  speak("ar");
  assert.match(shown()[0], /^1.50$/);
});

test("what somebody has typed stays as it is", () => {
  const typed = '<img src=x onerror="window.planted = 1"> {x} {count|a|b} constructor';
  const phrase = { template: "{x}: {name}", values: { x: { template: typed, values: {} }, name: "steps" } };
  for (const language of ["en", "ja"]) {
    speak(language);
    assert.equal(said({ text: `${typed}: steps`, phrase }), `${typed}: steps`);
  }
});

test("a badge says the headline, fallbacks, and what is true since the run", () => {
  const activity = { state: "active", title: "Apply ToMe", headline: "3 of 7", counts: {}, details: [] };
  assert.equal(badgeText({ ...activity, counts: { fallbacks: 1 } }), "3 of 7 · 1 fallback");
  assert.equal(badgeText({ ...activity, counts: { fallbacks: 39 } }), "3 of 7 · 39 fallbacks");
  const since = (mode) => headlineOf(shownActivity({ activity, stale: true }, { mode }));
  assert.deepEqual([0, 4, 2].map(since), ["settings changed since · 3 of 7", "bypassed · 3 of 7", "muted · 3 of 7"]);
  assert.equal(shownActivity({ activity, stale: false }, { mode: 4 }), activity);
  assert.equal(stateText({ title: "Compare Models", state: "inactive" }), "ran");
  const colours = [["active", true], ["active", false], ["partly", true]].map(([state, neutral]) => colourOf({ state, neutral }));
  assert.deepEqual(colours, ["on", "active", "partly"], "green is what is faster for certain");
});

test("a chip says no more than the runs before it prove", () => {
  const [steady, loaded, one] = [[0.3, 0.097], [0.368, 0.778], [0.305, null]].map(([seconds, within]) => ({ seconds, within }));
  assert.deepEqual(
    [[steady, 0.2], [steady, 0.295], [loaded, 0.3], [one, 0.2]].map(([off, seconds]) => againstText(off, seconds)),
    ["1.50x against plain", "0.92–1.12x against plain", "too few runs to compare", "about 1.5x against plain"],
  );
  const wonBack = (off, seconds) => wonBackText(off, seconds, 35, 20).replace(/.*: /, "");
  const cases = [[steady, 0.2], [steady, 0.295], [loaded, 0.3], [one, 0.2], [null, 0.2], [steady, 0.4]];
  assert.deepEqual(cases.map(([off, seconds]) => wonBack(off, seconds)), ["18", "", "", "~17", "", ""]);
  assert.equal(wonBackText(steady, 0.2, 35, 20), "compiling took 35 s once; runs until the nodes save that: 18");
});

test("a speed-up is the headline only where the rounds prove it", () => {
  const of = (state, quality, speedup) => Object.values(finding({ state, quality, speedup }));
  assert.deepEqual(of("faster", "visible", 1.623), ["1.62x faster", true]);
  assert.deepEqual(of("slower", "visible", 0.5), ["2.00x slower", true]);
  assert.deepEqual(of("unknown", "visible", 5.17), ["No difference in time was proved", false]);
  assert.deepEqual(of("suspicious", "another picture", 3.1), ["another picture", false]);
});

test("a report in its node has a level for each line", () => {
  const [text] = reportParts("The run\n\n  took 3 s\n    in one step\n");
  const lines = [...text.children].map(({ dataset, textContent }) => [dataset.level, textContent]);
  assert.deepEqual(lines, [["0", "The run"], ["1", "took 3 s"], ["2", "in one step"]]);
});
