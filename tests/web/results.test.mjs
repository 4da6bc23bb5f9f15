// What nodes show of their results: comparisons, sweeps, trades and profiles.

import assert from "node:assert/strict";
import { test } from "node:test";
import { api, app, open, speak, until } from "./comfyui.mjs";
import { comparisonParts } from "../../web/js/compare/comparisons.js";
import { createOffer } from "../../web/js/faster/findings.js";
import { createBar, profileParts } from "../../web/js/speed/speed_bars.js";
import { createResults } from "../../web/js/badges/results.js";
import { ActivityStore } from "../../web/js/badges/activity_store.js";
import { sweepParts } from "../../web/js/compare/sweeps.js";
import { loadWords } from "../../web/js/frontend/language.js";

/** Put elements into a box, and find what a selector names in it. */
function shown(parts) {
  const box = document.createElement("div");
  box.append(...parts);
  const all = (selector) => [...box.querySelectorAll(selector)];
  const text = (selector) => box.querySelector(selector)?.textContent;
  return { all, text };
}

const file = (filename) => ({ filename, subfolder: "", type: "temp" });
const distance = { rmse: 0.1, psnr: null, ssim: 0.5 };
const COMPARISON = {
  verdict: "1.50x faster", state: "faster", badge: "active", quality: "visible",
  speedup: 1.5, speedup_low: 1.4, speedup_high: 1.6, speedup_of: "step",
  seconds: { baseline: [3, 3.3], optimized: [2, 2.2] }, late_levels: null, fewer_steps: null,
  difference: distance, noise_floor: { another_seed: distance }, lines: ["one step: baseline 3 s", "int8: none", "fp32_x: 1"],
  files: { pictures: { baseline: ["a", "b", "c", "d"].map(file), optimized: ["e", "f", "g", "h"].map(file) } },
  shown: [3, 1, 2, 4], gains: { optimized: [1, 1, 1, 1], fewer_steps: [1, 1, 1, 1], late_levels: [1, 1, 1, 1] }, count: 4, seed_shares: [0.3, 0.2, 0.4, null], farthest: { picture: 3 },
}; // prettier-ignore

test("all pictures of a comparison are turned over, the worst first, each with its number", () => {
  const { all, text } = shown(comparisonParts([COMPARISON]));
  const seen = [];
  for (let turn = 0; turn < 5; turn++) {
    seen.push([text(".paceline-pager output"), new URL(all(".paceline-layer-left img")[0].src, document.baseURI).searchParams.get("filename")]);
    all(".paceline-pager button")[1].click();
  }
  assert.deepEqual(seen, [["3 / 4: 0.4", "a"], ["1 / 4: 0.3", "b"], ["2 / 4: 0.2", "c"], ["4 / 4", "d"], ["3 / 4: 0.4", "a"]]);
});

test("where the time is not clear, a button draws more rounds", async (context) => {
  const node = { widgets: [{ name: "runs", value: 2 }] };
  const done = context.mock.method(app.extensionManager.command, "execute", () => {});
  assert.equal(shown(comparisonParts([{ ...COMPARISON, clear: true }], node)).all(".paceline-finding button").length, 0);
  const { all } = shown(comparisonParts([{ ...COMPARISON, clear: false }], node));
  const [button] = all(".paceline-finding button");
  assert.equal(button.textContent, "4 more rounds");
  button.click();
  assert.deepEqual([node.widgets[0].value, button.disabled, done.mock.calls[0].arguments], [6, true, ["Comfy.QueuePrompt"]]);
});

test("a video begins with its worst frame, moves, and can be heard", () => {
  const seed_shares = Array(40).fill(0).with(24, 0.25);
  const frames = { shown: [1, 25, 40], count: 40, farthest: { picture: 25 }, seed_shares };
  const pictures = { baseline: ["a", "b", "c"].map(file), optimized: ["d", "e", "f"].map(file) };
  const sounds = { baseline: file("a.wav"), optimized: file("b.wav") };
  const { all, text } = shown(comparisonParts([{ ...COMPARISON, ...frames, files: { pictures, sounds, motion: file("motion.webp") } }]));
  assert.equal(text(".paceline-pager output"), "25 / 40: 0.25");
  assert.equal(text(".paceline-quality"), "visible difference");
  assert.deepEqual(all(".paceline-sound").map(({ textContent }) => textContent), ["Baseline", "Optimized"]);
  assert.match(all(".paceline-motion")[0].src, /motion.webp/);
});

test("each line of the details begins with a capital, and a name stays what it is", () => {
  const { all } = shown(comparisonParts([COMPARISON]));
  const lines = all("li, tbody th").map(({ textContent }) => textContent);
  assert.deepEqual(lines, ["Optimized", "Another seed", "One step: baseline 3 s", "int8: none", "fp32_x: 1"]);
  assert.deepEqual(all("tbody tr")[0].querySelectorAll("td").length, 3);
});

test("every round is a dot, and the speed-up has its interval and the line at 1x", () => {
  const { all } = shown(comparisonParts([COMPARISON]));
  const count = (name) => all(`.paceline-rounds-${name}`).length;
  assert.deepEqual(["row", "dot", "median", "interval", "line"].map(count), [3, 6, 3, 1, 1]);
  assert.deepEqual(all(".paceline-rounds-row .paceline-number").map(({ textContent }) => textContent), ["3.15 s", "2.10 s", "1.50x (1.40 – 1.60)"]);
});

test("the baseline can be held against itself with fewer steps and without late levels", () => {
  const late_levels = { steps: 2, full_steps: 3, seconds: 1, ratio: 0.9, as_good: true, difference: distance };
  const fewer_steps = { ...late_levels, ratio: 2, as_good: false };
  const controls = { late_levels: ["m", "n", "o", "p"].map(file), fewer_steps: ["i", "j", "k", "l"].map(file) };
  const files = { pictures: { ...COMPARISON.files.pictures, ...controls } };
  const { all } = shown(comparisonParts([{ ...COMPARISON, late_levels, fewer_steps, files }]));
  assert.deepEqual(all("tbody th").map(({ textContent }) => textContent), ["Optimized", "Late levels", "Fewer steps", "Another seed"]);
  const right = () => all(".paceline-layer-right img")[0];
  assert.equal(right().alt, "Optimized");
  const plain = all("button").find(({ textContent }) => textContent === "Plain model: 2 / 3 steps");
  assert.equal(plain.dataset.state, "inactive");
  plain.click();
  assert.deepEqual([right().alt, /filename=i/.test(right().src)], ["2 / 3 steps", true]);
  const late = all("button").find(({ textContent }) => textContent === "Plain model: 2 / 3 levels");
  assert.equal(late.dataset.state, "partly");
  late.click();
  assert.deepEqual([right().alt, /filename=m/.test(right().src)], ["2 / 3 levels", true]);
});

const cell = (label, speedup, more) => ({
  label, speedup, state: "measured", low: 1.5, high: 1.7, difference: 0.2, text: `of ${label}`, ...more,
}); // prettier-ignore
const CELLS = [cell("slow", 1.1, { low: 0 }), cell("fast", 1.6), cell("huge", null, { state: "out of memory", difference: null })];
const SWEEP = { dashboard: 'optuna-dashboard "sqlite:///sweeps.db"', total: 4, preset: null, cells: CELLS };

test("a sweep shows its cells, the fastest first, how many are left, and the command for plots", () => {
  const { all, text } = shown(sweepParts(SWEEP));
  const rows = all("tbody tr").map((row) => [...row.children].map(({ textContent }) => textContent));
  assert.deepEqual(rows, [
    ["fast", "1.60x (1.50 – 1.70)", "0.200"],
    ["slow", "1.10x", "0.200"],
    ["huge", "out of memory", "–"],
  ]);
  assert.equal(text("output"), "3 / 4 cells");
  assert.equal(text("code"), SWEEP.dashboard);
});

test("the menus show a preset that was saved, once", (context) => {
  const menus = context.mock.method(app, "refreshComboInNodes", async () => {});
  for (const preset of [null, "a study", "a study"]) sweepParts({ ...SWEEP, preset });
  assert.equal(menus.mock.callCount(), 1);
});

test("what was measured does not look like what is expected", () => {
  const told = (text) => ({ text, phrase: text });
  const offer = (label, more) => ({ label, expected: told("expected 1.6x"), about: told("steps 1.7x"), measured: null, beyond: false, picture: null, ...more });
  const proved = { measured: told("Measured: 1.58x faster"), picture: file("pair"), beyond: true };
  const { all, text } = shown([createOffer(offer("fast", proved)), createOffer(offer("careful"))]);
  assert.deepEqual(all("strong").map(({ textContent }) => textContent), ["fast", "careful"]);
  assert.equal(text(".paceline-measured.paceline-beyond"), "Measured: 1.58x faster");
  assert.deepEqual(all(".paceline-expected").map(({ textContent }) => textContent), Array(2).fill("expected 1.6x; steps 1.7x"));
  assert.equal(all("img").length, 1);
});

test("a profile shows the run, one step of it and what became of the weights", () => {
  const profile = {
    loading: 1, steps: [1, 1], decoding: null, slices: { attention: 0.25, linear: 0.75 }, about: {},
    weights: ["loading weights took 1 s"],
  }; // prettier-ignore
  const { all, text } = shown(profileParts(profile));
  const kinds = all(".paceline-bar").map((bar) => [...bar.querySelectorAll("li")].map(({ dataset }) => dataset.kind));
  assert.deepEqual(kinds, [["loading", "samplingRun"], ["linear", "attention"]]);
  assert.equal(all("[data-kind=samplingRun] i").length, 1); // where the first step ended
  assert.equal(text(".paceline-weights li"), "loading weights took 1 s");
});

test("a node shows its result for as long as it took part in the last run, in the language of the page", async () => {
  await loadWords();
  const [node] = open("results", [1, "PacelineOptimizationReport", {}], [2, "PacelineApplyToMe", {}]);
  const store = new ActivityStore();
  for (const kind of createResults(store)) kind.start();
  const element = () => node.shows("$$paceline-report");
  store.update("results", "1", { report: "The run" });
  const first = element().firstChild;
  assert.equal(first.textContent, "The run");
  store.update("results", "1", { activity: undefined });
  assert.equal(element().firstChild, first); // not drawn anew without news
  speak("es");
  assert.notEqual(element().firstChild, first);
  speak("en");
  node.widgets = []; // moved into a subgraph and back
  store.update("results", "1", { report: "The next run" });
  assert.equal(element().textContent, "The next run");
  store.finish("results", new Set(["2"]));
  assert.equal(element(), undefined);
});

test("a bar has no piece that nobody could see, and says what each took", () => {
  const pieces = [{ kind: "loading", seconds: 0.5 }, { kind: "samplingRun", seconds: 99 }, { kind: "loading", seconds: 50 }, { kind: "saving", seconds: 0.1 }];
  const { all, text } = shown([createBar("A run", pieces, ["a note"])]);
  assert.deepEqual(all("li").map(({ textContent }) => textContent), ["loading 50.5 s (34 %)", "sampling 99.0 s (66 %)"]);
  assert.deepEqual(all("span").map(({ title }) => title), ["loading 500 ms (0 %)", "sampling 99.0 s (66 %)", "loading 50.0 s (33 %)"]);
  assert.deepEqual([text("figcaption"), text("p")], ["A run: 150 s", "a note"]);
});

test("what differs is amplified as the server says, by side", () => {
  const gains = { optimized: [16, 8, 4, 0], fewer_steps: [2, 2, 2, 2] };
  const { text, all } = shown(comparisonParts([{ ...COMPARISON, gains }]));
  assert.equal(text(".paceline-layer-heat"), "Difference × 16");
  all(".paceline-pager button")[0].click();
  assert.equal(text(".paceline-layer-heat"), "No difference");
});
