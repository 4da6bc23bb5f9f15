// Nodes of ours in the graph: where they are found, put in, taken apart, folded, and told from afar.

import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { api, app, Node, open, until, wired } from "./comfyui.mjs";
import { foldAdvanced } from "../../web/js/frontend/inputs.js";
import { expandMenuItems } from "../../web/js/frontend/expand.js";
import { executionIdOf, findNode, ourNodes } from "../../web/js/frontend/graph.js";
import { drawOverlay } from "../../web/js/badges/overlay.js";
import { ActivityStore } from "../../web/js/badges/activity_store.js";
import { inputOf, locate } from "../../web/js/faster/wires.js";

const STEPS = [{ node: "PacelineApplyToMe", inputs: { ratio: 0.5 } }, { node: "PacelineCompileUNet", inputs: {} }];

let loader, ours, sampler, other, store;

beforeEach(() => {
  [loader, ours, sampler, other] = open("wires", [1, "Loader", {}], [2, "PacelineOptimizePreset", {}], [3, "KSampler", {}], [4, "KSampler", {}]);
  app.rootGraph.links = new Map();
  wired(loader, {}, ["MODEL"]);
  wired(ours, { model: "MODEL" }, ["MODEL", "VAE", "STRING"]);
  for (const node of [sampler, other]) wired(node, { model: "MODEL" }, []);
  loader.connect(0, ours, 0);
  ours.connect(0, sampler, 0);
  loader.connect(0, other, 0);
  window.LiteGraph = { createNode: (type) => wired(new Node(0, type, { ratio: 0.75 }), { model: "MODEL" }, ["MODEL"]) };
  app.canvas.selectItems = () => {};
  store = new ActivityStore();
});

/** The types of all nodes on the way from the loader to a node's model. */
const way = (node) => {
  const link = node.getInputLink(inputOf(node, "model"));
  const before = app.rootGraph.getNodeById(link.origin_id);
  return before.inputs.length ? [...way(before), before.type] : [];
};

test("a preset becomes its single nodes, in its place and with their values", async () => {
  const posted = [];
  app.graphToPrompt = async () => ({ output: { 2: { class_type: ours.type, inputs: {} } } });
  api.answers["/prompt"] = ({ body }) => (posted.push(JSON.parse(body)), { prompt_id: "asked" });
  const [{ content, callback }] = expandMenuItems(ours);
  assert.equal(content, "Turn into single nodes");
  callback();
  await until(() => posted.length);
  assert.deepEqual([Object.keys(posted[0].prompt), posted[0].partial_execution_targets], [["2", "paceline_trial_steps"], ["paceline_trial_steps"]]);
  api.tell("executed", { prompt_id: "asked", output: { paceline_steps: STEPS } });
  api.tell("execution_success", { prompt_id: "asked" });
  await until(() => !executionIdOf(ours));
  assert.deepEqual([way(sampler), way(other)], [["PacelineApplyToMe", "PacelineCompileUNet"], []]);
  assert.equal(app.rootGraph.nodes.find(({ type }) => type === "PacelineApplyToMe").widgets[0].value, 0.5);
});

test("where a preset cannot be asked what it applies, that is told", async (context) => {
  const told = context.mock.method(app.extensionManager.toast, "add");
  app.graphToPrompt = async () => ({ output: {} });
  api.answers["/prompt"] = () => Promise.reject(new Error("Not now"));
  expandMenuItems(ours)[0].callback();
  await until(() => told.mock.calls.length);
  assert.equal(told.mock.calls[0].arguments[0].summary, "Not now");
  assert.ok(executionIdOf(ours));
  ours.mode = 4; // bypassed: it is not run, so it cannot be asked
  assert.deepEqual([expandMenuItems(ours)[0].disabled, expandMenuItems(sampler)], [true, []]);
});

test("a node inside of a subgraph is found by each of its places, and a wire once in each", () => {
  const inner = { ...app.rootGraph, nodes: [loader, sampler], links: app.rootGraph.links };
  for (const node of inner.nodes) node.graph = inner;
  loader.connect(0, sampler, 0);
  const tome = new Node(5, "PacelineApplyToMe");
  inner.nodes.push(tome);
  const [first, second] = open("subgraphs", [7, "a subgraph", {}], [8, "a subgraph", {}]);
  first.subgraph = second.subgraph = inner;
  assert.deepEqual(ourNodes().map(({ id }) => id), ["7:5", "8:5"]);
  assert.deepEqual([findNode("8:5"), findNode("8:3"), findNode("9:5"), executionIdOf(tome)], [tome, undefined, undefined, "7:5"]);
  const wires = locate({ name: "model", receivers: ["7:3", "8:3", "7:9"].map((node) => ({ node, input: "model" })) });
  assert.deepEqual(wires.map(({ prefix, origin, receivers }) => [prefix, origin, receivers.length]), [["7:", 1, 1], ["8:", 1, 1]]);
});

test("advanced inputs of our nodes are folded, unless the saved node has set one", () => {
  const [node, plain] = open("advanced", [1, "PacelineApplyToMe", { ratio: 0.5, seed: 0 }], [2, "KSampler", { seed: 0 }]);
  const [fits, context] = [() => {}, { save() {}, restore() {}, measureText: (text) => ({ width: 10 * text.length }) }];
  app.canvas.ctx = context;
  for (const one of [node, plain]) {
    one.constructor = { comfyClass: one.type };
    one.widgets.at(-1).options.advanced = true;
    Object.assign(one, { isWidgetVisible: ({ advanced }) => !advanced || one.showAdvanced, expandToFitContent: fits });
    foldAdvanced(one);
  }
  app.canvas.ctx = undefined;
  assert.deepEqual([plain.expandToFitContent, plain.size], [fits, [200, 100]]);
  assert.deepEqual(node.getLayoutWidgets().map(({ name }) => name), ["ratio"]);
  node.onConfigure({});
  assert.ok(!node.showAdvanced);
  node.widgets[1].value = 7;
  node.onConfigure({});
  assert.deepEqual(node.getLayoutWidgets().map(({ name }) => name), ["ratio", "seed"]);
});

test("from afar the canvas says what nodes did, and of a subgraph what those inside did, the worst first", () => {
  const texts = [];
  const canvas = { save() {}, restore() {}, beginPath() {}, roundRect() {}, fill() {}, measureText: ({ length }) => ({ width: 8 * length }), fillText: (text) => texts.push(text) };
  const inner = { ...app.rootGraph, nodes: [new Node(5, "PacelineApplyToMe"), new Node(6, "PacelineFuseQKV")] };
  const [alone, holder] = open("from afar", [2, "PacelineCompileUNet", {}], [7, "a subgraph", {}]);
  holder.subgraph = inner;
  app.canvas.graph = app.rootGraph;
  drawOverlay(store);
  const drawn = (scale) => {
    texts.length = 0;
    app.canvas.ds.scale = scale;
    app.canvas.onDrawForeground(canvas, []);
    return [...texts];
  };
  assert.deepEqual(drawn(0.5), []);
  const told = (state) => ({ activity: { state, title: "", headline: `so it is ${state}`, counts: {}, details: [] } });
  for (const [id, state] of [["2", "active"], ["7:5", "active"], ["7:6", "failed"]]) store.update("from afar", id, told(state));
  assert.deepEqual(drawn(0.5), ["● so it is active", "▲ 1 failed · 1 active"]);
  assert.deepEqual(drawn(1), ["▲ 1 failed · 1 active"]); // the others have their badges
  alone.size = [20, 100];
  assert.equal(drawn(0.5)[0], "● s…");
  for (const text of ["2", "7:8"]) store.update("from afar", text, { chip: { text, lines: [] } });
  assert.deepEqual([drawn(0.5).slice(2), drawn(1).slice(1)], [["2", "7:8"], ["7:8"]]);
  app.settings["Paceline.Badges"] = false;
  assert.deepEqual(drawn(0.5), []);
  delete app.settings["Paceline.Badges"];
});
