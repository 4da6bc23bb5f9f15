// What badges say belongs to a run, of which the server's messages tell.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { api, app, open, until } from "./comfyui.mjs";
import { createBadges } from "../../web/js/badges/badges.js";
import { foretell } from "../../web/js/badges/before.js";
import { listen } from "../../web/js/badges/events.js";
import { settingsOf } from "../../web/js/frontend/saved_settings.js";
import { ActivityStore } from "../../web/js/badges/activity_store.js";

let store, badges;

/** What the server answers about the run. */
let run;
let number = 0;
api.answers["/paceline/run"] = () => run ?? {};

const NODES = [[4, "PacelineApplyToMe", { ratio: 0.5 }], [5, "PacelineSetAttentionProcessor", {}], [8, "KSampler", {}]];

beforeEach(() => {
  api.reload();
  store = new ActivityStore();
  badges = createBadges(store);
  listen(store);
  badges.start();
  number += 1;
  open(`workflow ${number}`, ...NODES);
  run = { prompt_id: `run ${number}`, workflow: app.rootGraph.serialize(), running: true };
});

const says = (node, headline, state = "active", more = {}) => ({
  node, prompt_id: run.prompt_id, state, title: "Apply ToMe", headline, counts: {}, details: [], neutral: true, ...more,
}); // prettier-ignore
const tell = (type, detail) => api.tell(type, { prompt_id: run.prompt_id, ...detail });
const hear = (...told) => api.tell("paceline.activity", says(...told));

/** The element of a node's badge; undefined if it has none. */
const badge = (id) => app.rootGraph.getNodeById(id)?.shows("$$paceline-badge")?.firstChild;
const shown = (id) => badge(id) && `${badge(id).dataset.state}: ${badge(id).textContent}`;
const shows = (id, text) => until(() => shown(id) === text, () => `${id} shows ${shown(id)}, not ${text}`);

/** Let a run begin that reaches both nodes of ours. */
async function begun() {
  api.tell("execution_start", { prompt_id: run.prompt_id });
  hear("4", "active in 3 of 7");
  hear("5", "sdpa already", "inactive");
  await shows(5, "inactive: ○sdpa already");
}

test("progress, fallbacks and their details are shown, and a cancelled run's messages do not come back", async () => {
  await begun();
  const compiling = { ...says("4", "compiling", "working"), details: ["tracing"], busy: true };
  tell("paceline.compile", compiling);
  hear("5", "flash in 3 of 42", "partly", { counts: { calls: 42, fallbacks: 39 }, details: ["39 x head size 40"] });
  await shows(5, "partly: ◐flash in 3 of 42 · 39 fallbacks");
  assert.equal(shown(4), "working: ↻compiling");
  const bar = () => badge(4).querySelector("progress");
  assert.deepEqual([bar().hidden, badge(5).querySelector("progress").hidden], [false, true]);
  assert.match(badge(4).title, /working\ncompiling\ntracing/);
  tell("paceline.compile", { ...compiling, headline: "graph 4" });
  await shows(4, "working: ↻graph 4");
  tell("execution_interrupted");
  await shows(4, "cancelled: ×cancelled");
  tell("paceline.compile", compiling);
  await until(() => true);
  assert.equal(shown(4), "cancelled: ×cancelled");
});

test("what a node had done stays on its badge when the run is cancelled", async () => {
  await begun();
  tell("execution_interrupted");
  await shows(4, "cancelled: ×cancelled · active in 3 of 7");
  await shows(5, "cancelled: ×cancelled · sdpa already");
});

test("what is known before a run stands on a badge until the node has run, and is asked for again when the workflow changes", async (context) => {
  const known = (node, headline) => ({ [node]: { ...says(node, headline, "inactive"), phrase: headline } });
  const asked = [];
  context.mock.method(globalThis, "setTimeout", (action) => setImmediate(action)); // without the pause
  app.graphToPrompt = async () => ({ output: { 4: { class_type: "PacelineApplyToMe", inputs: { ratio: asked.length } } } });
  api.answers["/paceline/before"] = ({ body }) => (asked.push(JSON.parse(body).prompt), { nodes: known("4", "UNets only") });
  foretell(store);
  await until(() => shown(4) === "inactive: ○UNets only", () => shown(4));
  assert.equal(store.idle(`workflow ${number}`), false); // no run has said so
  await begun();
  await shows(4, "on: ●active in 3 of 7");
  open(`workflow ${number}`, ...NODES, [9, "PacelineFuseQKV", {}]);
  api.answers["/paceline/before"] = ({ body }) => (asked.push(JSON.parse(body).prompt), { nodes: { ...known("4", "UNets only"), ...known("9", "fused") } });
  api.tell("graphChanged", app.rootGraph.serialize());
  await until(() => shown(9) === "inactive: ○fused", () => shown(9));
  assert.equal(shown(4), "on: ●active in 3 of 7"); // what a run has told is better
  assert.equal(asked.length, 2);
});

test("a prompt that no page has made changes no badge, nor does another workflow with the same numbers", async () => {
  await begun();
  const known = run;
  tell("execution_success");
  run = { ...run, prompt_id: "of a script", workflow: {} };
  api.tell("execution_start", { prompt_id: run.prompt_id });
  hear("4", "a script");
  api.tell("execution_success", { prompt_id: run.prompt_id });
  run = undefined;
  open("another workflow", ...NODES);
  badges.refresh();
  await until(() => true);
  assert.deepEqual([shown(4), shown(5)], [undefined, undefined]);
  run = known;
  open(known.workflow.id, ...NODES);
  badges.refresh();
  assert.deepEqual([shown(4), shown(5)], ["on: ●active in 3 of 7", "inactive: ○sdpa already"]);
});

test("our error stands on the badge, and who came after it was not reached", async () => {
  await begun();
  hear("5", "", "waiting");
  tell("execution_error", { node_id: "4", node_type: "PacelineApplyToMe", exception_message: "It broke.\nTry this." });
  await shows(4, "failed: ▲It broke.");
  await shows(5, "inactive: ○the run failed before this node");
});

test("a node that took no part in a run loses its badge with its end", async () => {
  await begun();
  tell("execution_success");
  run = { ...run, prompt_id: "the next" };
  api.tell("execution_start", { prompt_id: "the next" });
  tell("execution_cached", { nodes: ["5"] });
  tell("execution_success");
  await until(() => !badge(4), () => shown(4));
  assert.equal(shown(5), "inactive: ○sdpa already");
});

test("a badge says when it is of other settings, and again when it is not", async () => {
  await begun();
  const [node] = app.rootGraph.nodes;
  const changes = [
    [{ mode: 4 }, { mode: 0 }, "bypassed"],
    [{ mode: 2 }, { mode: 0 }, "muted"],
    [{ widgets: [{ ...node.widgets[0], value: 0.4 }, ...node.widgets.slice(1)] }, { widgets: node.widgets }, "settings changed since"],
  ];
  for (const [change, back, words] of changes) {
    for (const [values, text] of [[change, `stale: ◌${words} · active in 3 of 7`], [back, "on: ●active in 3 of 7"]]) {
      Object.assign(node, values);
      api.tell("graphChanged", app.rootGraph.serialize());
      assert.equal(shown(4), text);
    }
    assert.equal(shown(5), "inactive: ○sdpa already");
  }
});

test("a run that fails before it comes to a node says nothing of the node's new settings", async () => {
  await begun();
  tell("execution_success");
  app.rootGraph.nodes[0].widgets[0].value = 0.4;
  run = { ...run, prompt_id: "the next", workflow: app.rootGraph.serialize() };
  api.tell("execution_start", { prompt_id: "the next" });
  tell("execution_error", { node_id: "8", node_type: "KSampler", exception_message: "It broke." });
  await shows(4, "stale: ◌settings changed since · active in 3 of 7");
  assert.equal(shown(5), "inactive: ○sdpa already");
});

test("settings are another text for another wire, in subgraphs too", () => {
  const ours = (origin) => ({ id: 2, type: "PacelineApplyToMe", inputs: [{ name: "model", link: 1 }], widgets_values: [1] });
  const graph = (origin, links) => ({ nodes: [ours(origin)], links });
  const inner = graph(1, [{ id: 1, origin_id: 1, origin_slot: 0 }]);
  const workflow = { nodes: [{ id: 7, type: "a subgraph" }], definitions: { subgraphs: [{ id: "a subgraph", ...inner }] } };
  assert.deepEqual([...settingsOf(workflow).keys()], ["7:2"]);
  const plain = (links) => settingsOf(graph(1, links)).get("2");
  assert.equal(plain([[1, 1, 0, 2, 0, "MODEL"]]), settingsOf(workflow).get("7:2"));
  assert.notEqual(plain([[1, 3, 0, 2, 0, "MODEL"]]), plain([[1, 1, 0, 2, 0, "MODEL"]]));
});

test("a run whose end was not heard is over when the connection is back", async () => {
  await begun();
  hear("4", "sampling", "working");
  await shows(4, "working: ↻sampling");
  api.tell("reconnected"); // it still goes on
  await until(() => true);
  assert.equal(shown(4), "working: ↻sampling");
  run = undefined; // the server was started again
  api.tell("reconnected");
  await shows(4, "failed: ▲The connection to the server was lost, and this run with it.");
  assert.equal(shown(5), "inactive: ○sdpa already");
});
