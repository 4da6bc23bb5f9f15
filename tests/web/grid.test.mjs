// The grid of Benchmark Sweep: its text, its form, and how long it will take.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { api, app, happens, open, speak, until } from "./comfyui.mjs";
import { addGridForm, renewGridForms } from "../../web/js/grid_form.js";
import { rememberSettings, settingOf } from "../../web/js/grid_settings.js";
import { countCells, readRows, spread, writeRows } from "../../web/js/grid_text.js";
import { describe } from "../../web/js/speed_history.js";
import { timeText } from "../../web/js/sweep_time.js";

const TOME = {
  name: "PacelineApplyToMe",
  display_name: "Apply ToMe",
  output_node: false,
  input: {
    required: {
      model: ["MODEL"],
      preset: ["COMBO", { options: ["custom", "quality", "balanced", "fast"] }],
      ratio: ["FLOAT", { min: 0, max: 0.9 }],
    },
  },
};

beforeEach(() => {
  rememberSettings(TOME);
  app.graphToPrompt = async () => ({ output: {} });
});

test("a text becomes rows and the same text again, without comments and lines that cannot be read", () => {
  const rows = readRows("Apply ToMe.ratio: 0.25, 0.5 # two\n# nothing\nno colon\nname: a:b\nempty:\n");
  assert.deepEqual(rows, [
    { name: "Apply ToMe.ratio", values: ["0.25", "0.5"] },
    { name: "name", values: ["a:b"] },
    { name: "empty", values: [] },
  ]);
  assert.equal(writeRows(rows), "Apply ToMe.ratio: 0.25, 0.5\nname: a:b\n");
});

test("cells are counted", () => {
  const count = (text) => countCells(readRows(text));
  assert.equal(count("a.x: 1, 2\nb: on, off\nb.y: 3, 4, 5\n"), 8); // a node that is off takes its settings with it
  assert.equal(count("A.x: 0.2 .. 0.8"), null);
  assert.equal(count(Array.from({ length: 5 }, (_, at) => `n${at}.x: ${[..."0123456789"].join(", ")}`).join("\n")), 1e5);
});

test("values are spread from one end to the other", () => {
  assert.deepEqual(spread(0.25, 0.75, 3, false), ["0.25", "0.5", "0.75"]);
  assert.deepEqual(spread(1, 3, 5, true), ["1", "2", "3"]);
  assert.deepEqual(spread(2, 2, 1, true), ["2"]);
});

test("a setting is found by the node's title, by its id, and by its id with our prefix", () => {
  const names = ["Apply ToMe.ratio", "ApplyToMe.ratio", "PacelineApplyToMe.ratio"];
  assert.deepEqual(names.map((name) => settingOf(name)?.name), Array(3).fill("ApplyToMe.ratio"));
  assert.equal(settingOf("CLIPLoader.device"), undefined);
});

/** Open a sweep with a grid, and the nodes that it samples with. */
function sweep(grid, more = {}) {
  const values = { grid, search: "grid", trials: 20, steps: 2, runs: 2, most_runs: 0, warmup_runs: 1, ...more };
  const [node] = open("a sweep", [7, "PacelineBenchmarkSweep", values]);
  node.constructor = { comfyClass: "PacelineBenchmarkSweep" };
  addGridForm(node, () => null);
  const form = node.shows("$$paceline-grid");
  const find = (selector) => [...form.querySelectorAll(selector)];
  const text = () => node.widgets.find(({ name }) => name === "grid").value;
  const total = () => form.querySelector("output").textContent;
  const press = (label) => find("button").find((button) => [button.textContent, button.ariaLabel].includes(label)).click();
  return { node, form, find, text, total, press };
}

/** Set an input as a user does. */
function set(input, values) {
  for (const [name, value] of Object.entries(values)) Object.defineProperty(input, name, { value, writable: true });
  happens(input, "change");
}

test("the grid is a form that writes the text, and the text is written by hand too", () => {
  const { find, text, total, press } = sweep("Apply ToMe.preset: quality, fast\nsize: 512");
  const tick = (label) => set(find("label").find((one) => one.textContent === label).firstChild, { checked: true });
  assert.equal(total(), "2 cells · its time is known after the first cell");
  tick("balanced");
  assert.equal(text(), "Apply ToMe.preset: quality, balanced, fast\nsize: 512\n");
  tick("1024");
  const [select] = find("select");
  assert.deepEqual([...select.querySelectorAll("option")].map(({ value }) => value), ["", "batch", "ApplyToMe", "ApplyToMe.ratio"]);
  set(select, { value: "ApplyToMe.ratio" });
  const [from, to, count] = find("input[type=number]");
  Object.assign(from, { value: "0.25" });
  Object.assign(to, { value: "0.75" });
  set(count, { value: "3" });
  assert.match(text(), /size: 512, 1024\nApplyToMe.ratio: 0.25, 0.5, 0.75\n$/);
  assert.match(total(), /^18 cells · /);
  press("Edit as text");
  const [area] = find("textarea");
  area.value += "batch: 2";
  happens(area, "input");
  assert.match(text(), /0.75\nbatch: 2$/);
  press("Edit with checkboxes");
  press("Remove Apply ToMe · preset");
  assert.equal(text(), "size: 512, 1024\nApplyToMe.ratio: 0.25, 0.5, 0.75\nbatch: 2\n");
});

test("a search goes through as many cells as it has trials, and only it through a range", () => {
  const { node, form, total } = sweep("Apply ToMe.ratio: 0.2 .. 0.8");
  assert.equal(total(), "A range needs search: optuna");
  node.widgets.find(({ name }) => name === "search").value = "optuna";
  happens(form, "pointerenter");
  assert.equal(total(), "20 cells · its time is known after the first cell");
});

test("the time is foretold where a KSampler drew the same before", async () => {
  const model = { class_type: "CheckpointLoaderSimple", inputs: { ckpt_name: "a" } };
  const shared = { model: ["1", 0], cfg: 2, sampler_name: "euler" };
  const prompt = { 1: model, 7: { class_type: "PacelineBenchmarkSweep", inputs: { ...shared, grid: "" } } };
  app.graphToPrompt = async () => ({ output: prompt });
  const drawn = { 1: model, 4: { class_type: "KSampler", inputs: { ...shared, steps: 30, seed: 7 } } };
  api.settings["Paceline.Speeds"] = { [describe(drawn, "4").key]: [10] };
  const { total, form } = sweep("Apply ToMe.preset: quality, fast");
  const shown = new Promise((next) => new MutationObserver(next).observe(form, { childList: true, subtree: true, characterData: true }));
  await shown;
  assert.equal(total(), "2 cells · about 4 min"); // each 2 steps in 2 runs and a warm-up, of both sides
});

test("an expected time is of what is sampled now, and of no size in the grid", async () => {
  const model = (ckpt_name) => ({ class_type: "CheckpointLoaderSimple", inputs: { ckpt_name } });
  const shared = { model: ["1", 0], cfg: 2 };
  const drawn = { 1: model("a"), 4: { class_type: "KSampler", inputs: shared } };
  api.settings["Paceline.Speeds"] = { [describe(drawn, "4").key]: [10] };
  let opened = "a";
  app.graphToPrompt = async () => ({ output: { 1: model(opened), 7: { class_type: "PacelineBenchmarkSweep", inputs: shared } } });
  const { node, form, total } = sweep("Apply ToMe.preset: quality, fast");
  await until(() => total() === "2 cells · about 4 min", total);
  const unknown = "2 cells · its time is known after the first cell";
  const [grid] = node.widgets;
  grid.value = "size: 512, 1024";
  happens(form, "pointerenter");
  assert.equal(total(), unknown);
  grid.value = "Apply ToMe.preset: quality, fast";
  happens(form, "pointerenter");
  assert.equal(total(), "2 cells · about 4 min");
  opened = "b";
  happens(form, "pointerenter");
  await until(() => total() === unknown, total);
});

test("a node under its title and its id is one node, and a range has its ends", () => {
  const { form, total } = sweep("Apply ToMe: on, off\nApplyToMe.ratio: 0.25, 0.5");
  assert.match(total(), /^3 cells/);
  const [from, to] = sweep("Apply ToMe.ratio: 0.2 .. 0.8").find("input[type=number]");
  assert.deepEqual([from.value, to.value], ["0.2", "0.8"]);
});

test("a form speaks another language only as long as its node is in the workflow", () => {
  const { form } = sweep("size: 512");
  const [button] = form.querySelectorAll(".paceline-toolbar button");
  const drawn = () => form.contains(button);
  open("another workflow");
  renewGridForms();
  speak("es");
  assert.ok(drawn());
  speak("en");
});

test("times are said in the unit that fits", () => {
  assert.deepEqual([0.2, 89, 100, 7200].map(timeText), ["about 1 s", "about 89 s", "about 2 min", "about 2 h"]);
});
