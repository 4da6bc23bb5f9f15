// "Turn into single nodes" in the context menu of Optimize (Preset): the nodes that it applies, in its place.

import { app, createNode } from "./comfy.js";
import { executionIdOf, openWorkflow } from "./graph.js";
import { makeNode } from "./insert.js";
import { layInRow } from "./place.js";
import { openPrompt } from "./prompt.js";
import { NO_RUN, runPrompt } from "./run_prompt.js";
import { isLink } from "./speed_history.js";
import { words } from "./words.js";

/** @typedef {import("@comfyorg/comfyui-frontend-types").ComfyExtension} Extension */
/** @typedef {import("./graph.js").LGraphNode} LGraphNode */
/** @typedef {import("./payloads").Step} Step */
/** @typedef {import("./prompt.js").Prompt} Prompt */

const TYPE = "PacelineOptimizePreset";
const REPORT = "PacelineOptimizationReport";

/** The frontend's mode of a node that is neither bypassed nor muted. */
const ALWAYS = 0;

/** What is handed from node to node, by the name of the input. */
const PASSED_ON = { model: "MODEL", vae: "VAE" };

/**
 * @param {LGraphNode} node
 * @param {import("./store.js").ActivityStore} store
 * @returns {Extension["getNodeMenuItems"] extends ((node: any) => infer Items) | undefined ? Items : never}
 */
export function expandMenuItems(node, store) {
  if (node.type !== TYPE) return [];
  const disabled = !canExpand(node, store);
  const callback = () => void expandAs(node, store);
  return [{ content: words(disabled ? "expandAfterRun" : "expand"), disabled, callback }];
}

/**
 * @param {import("./store.js").ActivityStore} store
 * @returns {Extension["commands"] extends (infer Command)[] | undefined ? Command : never} for the nodes that are selected
 */
export function createExpandCommand(store) {
  return {
    id: "Paceline.Expand",
    label: "Paceline: turn into single nodes",
    icon: "pi pi-sitemap",
    function: async () => {
      const selected = /** @type {Iterable<LGraphNode>} */ (/** @type {unknown} */ (app.canvas.selectedItems));
      for (const node of [...selected].filter(({ type }) => type === TYPE)) await expandAs(node, store);
    },
  };
}

/**
 * @param {unknown} selected
 * @returns {string[]} the command, in the toolbar above a selected node
 */
export function expandToolbox(selected) {
  return /** @type {LGraphNode} */ (selected).type === TYPE ? ["Paceline.Expand"] : [];
}

/**
 * @param {LGraphNode} node
 * @param {import("./store.js").ActivityStore} store
 * @returns {Step[]} what it has applied with its settings of now; none before a run
 */
function knownSteps(node, store) {
  const entry = store.entry(openWorkflow(), executionIdOf(node) ?? "");
  return (!entry?.stale && entry?.steps) || [];
}

/**
 * @param {LGraphNode} node
 * @param {import("./store.js").ActivityStore} store
 * @returns {boolean} a node that is bypassed can only say what it has applied before
 */
function canExpand(node, store) {
  return node.mode === ALWAYS || knownSteps(node, store).length > 0;
}

/**
 * @param {LGraphNode} node
 * @param {import("./store.js").ActivityStore} store
 */
async function expandAs(node, store) {
  if (!canExpand(node, store)) return;
  try {
    const known = knownSteps(node, store);
    expand(node, known.length ? known : await stepsOf(node));
  } catch (error) {
    const summary = String(/** @type {Error} */ (error).message);
    app.extensionManager.toast.add({ severity: "error", summary, life: 6000 });
  }
}

/**
 * Ask the node what it applies: it looks at the model, so that is loaded, but nothing is sampled.
 * @param {LGraphNode} node
 * @returns {Promise<Step[]>}
 */
async function stepsOf(node) {
  const id = executionIdOf(node) ?? "";
  const report = node.outputs.findIndex(({ type }) => type === "STRING");
  const sources = withSources(await openPrompt(), id);
  const shown = { [`${NO_RUN}_steps`]: { class_type: "PreviewAny", inputs: { source: [id, report] } } };
  return runPrompt({ ...sources, ...shown }, ({ paceline_steps }) => paceline_steps);
}

/**
 * @param {Prompt} prompt
 * @param {string} id
 * @param {Prompt} [found]
 * @returns {Prompt} a node and all that it needs
 */
function withSources(prompt, id, found = {}) {
  if (found[id] || !prompt[id]) return found;
  found[id] = prompt[id];
  for (const value of Object.values(prompt[id].inputs)) if (isLink(value)) withSources(prompt, value[0], found);
  return found;
}

/**
 * Put the steps' nodes in the place of a node. One step back with undo.
 * @param {LGraphNode} node
 * @param {Step[]} steps
 */
export function expand(node, steps) {
  const { graph } = node;
  if (!graph) return;
  graph.beforeChange();
  const nodes = steps.flatMap((step) => makeNode(step) ?? []);
  for (const made of nodes) graph.add(made);
  for (const [name, type] of Object.entries(PASSED_ON)) chain(node, nodes, name, type);
  keepReport(node, nodes);
  graph.remove(node);
  layInRow(graph, nodes, [node.pos[0] + node.size[0], node.pos[1]]);
  graph.afterChange();
  app.canvas.selectItems(nodes);
}

/**
 * Where somebody reads what the preset has applied, let Optimization Report say it of the single nodes.
 * @param {LGraphNode} node
 * @param {LGraphNode[]} nodes which are given the report's node
 */
function keepReport(node, nodes) {
  const { graph } = node;
  const output = node.outputs.find((slot) => slot.type === "STRING");
  const model = nodes.findLast((made) => made.outputs.some((slot) => slot.type === "MODEL"));
  const report = graph && model && output?.links?.length ? createNode(REPORT) : null;
  if (!graph || !model || !report) return;
  graph.add(report);
  model.connect(0, report, 0);
  for (const id of [...(output?.links ?? [])]) {
    const link = graph.links.get(id);
    const receiver = link && graph.getNodeById(link.target_id);
    if (link && receiver) report.connect(0, receiver, link.target_slot);
  }
  nodes.push(report);
}

/**
 * Lead what a node was given through all nodes that take it, to whoever the node gave it to.
 * @param {LGraphNode} node
 * @param {LGraphNode[]} nodes
 * @param {string} name of the inputs
 * @param {string} type of the outputs
 */
function chain(node, nodes, name, type) {
  const input = node.inputs.findIndex((slot) => slot.name === name);
  const output = node.outputs.findIndex((slot) => slot.type === type);
  const source = input < 0 ? null : node.getInputLink(input);
  let from = source && node.graph?.getNodeById(source.origin_id);
  if (!source || !from) return;
  let slot = source.origin_slot;
  for (const made of nodes) {
    const target = made.inputs.findIndex((candidate) => candidate.name === name);
    const next = made.outputs.findIndex((candidate) => candidate.type === type);
    if (target < 0) continue;
    from.connect(slot, made, target);
    if (next >= 0) [from, slot] = [made, next];
  }
  for (const id of [...(node.outputs[output]?.links ?? [])]) {
    const link = node.graph?.links.get(id);
    const receiver = link && node.graph?.getNodeById(link.target_id);
    if (link && receiver) from.connect(slot, receiver, link.target_slot);
  }
}
