// Where the time goes: the timeline of runs, what a sampler's chip says of them, and against what.

import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import { api, app, happens, open, until } from "./comfyui.mjs";
import { createChips, watchSamplers } from "../../web/js/speed/chips.js";
import { keepOutcomes, renderOutcomes } from "../../web/js/speed/outcomes.js";
import { expectOf } from "../../web/js/faster/expected.js";
import { runPrompt } from "../../web/js/faster/run_prompt.js";
import { ActivityStore } from "../../web/js/badges/activity_store.js";
import { secondsPerStep, secondsPerStepOfHalves, Timeline } from "../../web/js/speed/timeline.js";

let now = 0;
let timeline, store, chips, prompt, prompts, kept, number = 0;
mock.method(performance, "now", () => now);

const NODES = [[1, "CheckpointLoaderSimple", {}], [2, "PacelineApplyToMe", {}], [4, "KSampler", {}], [5, "VAEDecode", {}]];

/** What ComfyUI runs: a picture of some width, with our node or without. */
const picture = (width, seed, ours) => ({
  1: { class_type: "CheckpointLoaderSimple", inputs: { ckpt_name: "a" } },
  2: { class_type: "PacelineApplyToMe", inputs: { model: ["1", 0], ratio: 0.5 } },
  3: { class_type: "EmptyLatentImage", inputs: { width } },
  4: { class_type: "KSampler", inputs: { model: [ours ? "2" : "1", 0], latent_image: ["3", 0], seed, steps: 20 } },
});

/** What the server says of samplings, as service/outcomes.py does: a size is a work, and our node is 2. */
function samplings(_, route) {
  const { 3: latent, 4: sampler } = prompts.get(route.split("=")[1]);
  const off = kept[latent.inputs.width];
  return { 4: { techniques: Number(sampler.inputs.model[0] === "2"), off: off ? { seconds: off, within: null } : null } };
}

function keep({ body }) {
  const { prompt_id, steps } = JSON.parse(body);
  const { 3: latent } = prompts.get(prompt_id);
  if (!samplings(null, `?prompt_id=${prompt_id}`)[4].techniques) kept[latent.inputs.width] = steps[4][0];
  return { slower: null };
}

beforeEach(() => {
  api.reload();
  [prompts, kept] = [new Map(), {}];
  sessionStorage.setItem("paceline.runs", "[]");
  timeline = new Timeline();
  timeline.listen();
  keepOutcomes(timeline);
  store = new ActivityStore();
  watchSamplers(timeline, store);
  chips = createChips(store);
  chips.start();
  open(`speed ${(number += 1)}`, ...NODES);
  app.graphToPrompt = async () => ({ output: prompt });
  api.answers = {
    "/paceline/run": (_, route) => ({ running: true, workflow: route.endsWith("=baseline") ? {} : { ...app.rootGraph.serialize(), id: `speed ${number}` } }),
    "/paceline/samplings": samplings,
    "/paceline/outcomes": keep,
  };
});

const chip = () => app.rootGraph.getNodeById(4).shows("$$paceline-chip");
const says = (pattern) => until(() => pattern.test(chip()?.firstChild?.textContent ?? ""), () => `${chip()?.textContent}`);

/** Let the page hear of a run whose steps take so many seconds; of some only after it has begun. */
async function draw(id, seconds, more = () => {}) {
  now = 0;
  prompts.set(id, prompt);
  api.tell("execution_start", { prompt_id: id });
  for (const [at, node] of [[0, "1"], [1, "4"]]) {
    now = 1000 * at;
    api.tell("executing", node);
  }
  more();
  for (let value = 1; value <= 5; value++) {
    now += 1000 * seconds;
    api.tell("progress", { node: "4", value, max: 5, prompt_id: id });
  }
  api.tell("executing", "5");
  now += 500;
  api.tell("execution_success", { prompt_id: id });
  await until(() => timeline.current.workflow || id === "baseline");
}

test("a run has a part for each node, by what it is for, and a sampler's has its steps", async () => {
  prompt = picture(64, 1, false);
  await draw("a", 2);
  const parts = timeline.current.parts.map(({ kind, start, end, steps }) => [kind, start, end, steps.length]);
  assert.deepEqual(parts, [["loading", 0, 1, 0], ["samplingRun", 1, 11, 5], ["decoding", 11, 11.5, 0]]);
  assert.deepEqual(secondsPerStepOfHalves(timeline.current.parts[1]), [2, 2]);
  const again = new Timeline();
  again.listen();
  assert.deepEqual(again.runs, timeline.runs); // after a reload
});

test("a run that goes on when the page is loaded again has no times", async () => {
  prompt = picture(64, 1, false);
  await draw("a", 2);
  api.tell("execution_start", { prompt_id: "b" });
  api.tell("executing", "1");
  timeline.keep(); // as when something more is known of the run before
  const again = new Timeline();
  again.listen();
  assert.deepEqual(again.runs.map(({ promptId }) => promptId), ["a"]);
});

test("weights that a sampler loads again have a part of their own, and a sentence with the cause", async () => {
  prompt = picture(64, 1, false);
  await draw("a", 2, () => {
    now += 4000;
    api.tell("paceline.loading", { node: "2", prompt_id: "a", seconds: 3, why: "loading weights again took 3 s: no room" });
  });
  const parts = timeline.current.parts.map(({ kind, start, end, again }) => [kind, start, end, again]);
  assert.deepEqual(parts.slice(1, 4), [
    ["samplingRun", 1, 2, undefined],
    ["loading", 2, 5, "loading weights again took 3 s: no room"],
    ["samplingRun", 5, 15, undefined],
  ]);
});

test("both halves of a run tell how fast a step is, a short run only once, and a half whose messages came together not", () => {
  const halves = [[5, 6, 7, 9, 11], [5, 6, 8], [5, 6], [5], [5, 5, 7]].map((steps) => secondsPerStepOfHalves({ steps }));
  assert.deepEqual(halves, [[1, 2], [1, 2], [1], [], [2]]);
});

test("a step that is left out counts, though no message tells of it", async () => {
  api.tell("execution_start", { prompt_id: "a" });
  api.tell("executing", "4");
  for (const [seconds, value] of [[5, 1], [2, 2], [2, 5], [2, 6]]) {
    now += seconds * 1000;
    api.tell("progress", { node: "4", value, max: 6, prompt_id: "a" });
  }
  assert.deepEqual([secondsPerStep(timeline.current.parts[0]), timeline.current.parts[0].steps.length], [6 / 5, 6]);
});

test("a measurement is no run of the workflow", async () => {
  api.tell("execution_start", { prompt_id: "a" });
  api.tell("executing", "paceline_trial");
  assert.deepEqual(timeline.runs, []);
});

test("the chip says how fast a sampler is, against runs without our nodes, and how long it takes", async () => {
  prompt = picture(64, 1, true);
  await draw("with", 2);
  await says(/^no plain run yet · 2.00 s\/it$/);
  prompt = picture(64, 2, false);
  await draw("without", 3);
  await says(/^plain · 3.00 s\/it$/);
  prompt = picture(64, 3, true);
  await draw("compiled", 0.5, () => {
    now += 10_000;
    api.tell("paceline.compile", { node: "2" });
  });
  await says(/^about 6.0x against plain · 2.00 it\/s$/);
  assert.deepEqual(timeline.current.parts.map(({ kind }) => kind), ["loading", "compiling", "samplingRun", "decoding"]);
  assert.match(timeline.current.parts[2].wonBack, /compiling took 10 s once; .*: ~1$/);
});

test("the next run with what was kept is the test of what was expected", async () => {
  prompt = picture(64, 1, false);
  await draw("watched", 3);
  prompt = picture(64, 1, true); // the nodes are inserted
  expectOf(`speed ${number}`, [1.4, 1.6, 1.8], timeline.current, ["2"]);
  assert.equal(timeline.current.expected, ""); // it is no test of itself
  await draw("kept", 2);
  await until(() => timeline.current.parts[1].expected);
  assert.equal(timeline.current.expected, "expected 1.6x (1.4–1.8x), was 1.50x");
  await says(/^expected 1.6x, was 1.50x · 2.00 s\/it$/);
  for (const other of [picture(128, 1, true), picture(64, 1, false)]) { // another size, and the node bypassed
    prompt = other;
    await draw(`other ${JSON.stringify(other).length}`, 8);
    await until(() => timeline.current.expected !== undefined);
    assert.equal(timeline.current.expected, "");
  }
  open(`speed ${number}`, ...NODES.filter(([id]) => id !== 2)); // taken out again
  await draw("undone", 3);
  await until(() => timeline.current.expected !== undefined);
  assert.equal(timeline.current.expected, "");
});

test("a run in which no node did anything is compared with nothing", async () => {
  prompt = picture(64, 1, false);
  await draw("plain", 3);
  await says(/^plain · 3.00 s\/it$/);
  prompt = picture(64, 1, true);
  expectOf(`speed ${number}`, [1.4, 1.6, 1.8], timeline.current, ["2"]);
  const nothing = (state) => store.update(`speed ${number}`, "2", { activity: { state, title: "Apply ToMe", headline: "", counts: {}, details: [] } });
  await draw("idle", 6, () => nothing("inactive"));
  await says(/^no node was active · 6.00 s\/it$/);
  await until(() => timeline.current.expected !== undefined);
  assert.equal(timeline.current.expected, "");
  await draw("active", 2, () => nothing("active"));
  await says(/^expected 1.6x, was 1.50x · 2.00 s\/it$/);
});

test("a computed step that got slower tells of a busy machine, and of no speed-up", async () => {
  prompt = picture(64, 1, false);
  await draw("plain", 3);
  prompt = picture(64, 1, true);
  expectOf(`speed ${number}`, [1.8, 2, 2.2], timeline.current, ["2"]);
  const counts = { evaluations: 20, computed: 10 };
  const half = () => store.update(`speed ${number}`, "2", { activity: { state: "active", title: "Reuse Steps", headline: "", counts, details: [] } });
  await draw("busy", 4, half);
  await says(/^expected 2.0x; the machine was busy · 4.00 s\/it$/);
  await draw("calm", 1.5, half);
  await says(/^expected 2.0x, was 2.00x · 1.50 s\/it$/);
});

test("a workflow without our nodes has no chip, and is what later runs with them are compared with", async () => {
  open(`speed ${number}`, ...NODES.filter(([id]) => id !== 2));
  prompt = picture(64, 1, false);
  await draw("plain", 3);
  await until(() => true);
  assert.equal(chip(), undefined);
  open(`speed ${number}`, ...NODES);
  prompt = picture(64, 2, true);
  await draw("ours", 2);
  await says(/^about 1.5x against plain · 2.00 s\/it$/);
});

test("a run whose end was not heard is over when the connection is back", async () => {
  prompt = picture(64, 1, false);
  prompts.set("a", prompt);
  now = 0;
  api.tell("execution_start", { prompt_id: "a" });
  api.tell("executing", "4");
  for (let value = 1; value <= 3; value++) api.tell("progress", { node: "4", value, max: 5, prompt_id: "a" }, (now += 2000));
  await says(/ · 4 s left · /);
  now += 60_000;
  api.answers["/paceline/run"] = { workflow: { id: `speed ${number}` }, running: true };
  api.tell("reconnected");
  await until(() => true);
  assert.equal(timeline.current.over, false);
  api.answers["/paceline/run"] = {};
  api.tell("reconnected");
  await says(/^plain · 2.00 s\/it$/);
  assert.equal(timeline.current.parts[0].end, 6);
});

test("a run leaves no chip in another workflow that is open by now", async () => {
  prompt = picture(64, 1, false);
  open("another", ...NODES); // with nodes of the same numbers
  await draw("a", 2);
  await until(() => timeline.current.parts[1].chip);
  assert.equal(chip(), undefined);
  open(`speed ${number}`, ...NODES);
  chips.refresh();
  assert.equal(chip().textContent, "plain · 2.00 s/it");
});

test("how many runs are kept is said when it is known, or that the server does not say", async () => {
  api.answers["/paceline/outcomes"] = { runs: [{}, {}] };
  const set = [];
  const render = () => renderOutcomes("Keep what runs took", (value) => set.push(value), true);
  const [known, unknown] = [render(), (delete api.answers["/paceline/outcomes"], render())];
  assert.equal(known.querySelector("output").textContent, "…");
  await until(() => known.querySelector("button").textContent === "Export (2)");
  assert.equal(unknown.querySelector("output").textContent, "unknown");
  const keeps = render().querySelector("input");
  keeps.checked = false;
  happens(keeps, "change");
  assert.deepEqual([set, keeps.ariaLabel], [[false], "Keep what runs took"]);
});

/** Run a measurement of which no message comes, and let the connection be lost and found again. */
async function missed(history) {
  api.answers["/prompt"] = { prompt_id: "mine" };
  api.answers["/queue"] = { queue_running: [], queue_pending: [] };
  api.answers["/history/mine"] = history;
  const answer = runPrompt({}, ({ text }) => text?.[0]).catch(({ message }) => message);
  await until(() => true);
  api.tell("reconnected");
  return answer;
}

test("a measurement does not wait for messages that were missed", async () => {
  const ended = { status: { status_str: "success" }, outputs: { paceline_trial: { text: ["found"] } } };
  assert.equal(await missed({ mine: ended }), "found");
  const failed = { status: { status_str: "error", messages: [["execution_error", { exception_message: "It broke." }]] } };
  assert.equal(await missed({ mine: failed }), "It broke.");
  assert.match(await missed({}), /^The connection to the server was lost/); // a server that was started again
});

test("a measurement that somebody takes out of the queue is stopped", async () => {
  let pending = [[0, "mine"]];
  api.answers["/prompt"] = { prompt_id: "mine" };
  api.answers["/queue"] = () => ({ queue_running: [], queue_pending: pending });
  api.answers["/history/mine"] = {};
  let answer = "";
  void runPrompt({}, () => undefined).catch(({ name }) => (answer = name));
  await until(() => true);
  api.tell("status", {});
  await until(() => true);
  assert.equal(answer, "");
  pending = [];
  api.tell("status", {});
  await until(() => answer === "AbortError");
});

test("a measurement that is cancelled is taken out of the queue, and no other", async () => {
  const asked = [];
  api.answers["/prompt"] = { prompt_id: "mine" };
  for (const route of ["/queue", "/interrupt"]) api.answers[route] = ({ body }) => (asked.push([route, JSON.parse(body)]), {});
  const stop = new AbortController();
  const answer = runPrompt({}, () => undefined, { cancelled: stop.signal }).catch(({ name }) => name);
  api.tell("execution_interrupted", { prompt_id: "another" });
  stop.abort();
  assert.equal(await answer, "AbortError");
  await until(() => asked.length === 2);
  assert.deepEqual(asked, [["/queue", { delete: ["mine"] }], ["/interrupt", { prompt_id: "mine" }]]);
});
