// "Turn into single nodes" in the context menu of Optimize (Preset): the nodes that it has applied, in its place.

import { app, createNode } from "./comfy.js";
import { executionIdOf, openWorkflow } from "./graph.js";
import { makeNode } from "./insert.js";
import { layInRow } from "./place.js";
import { words } from "./words.js";

/** @typedef {import("./graph.js").LGraphNode} LGraphNode */
/** @typedef {import("./payloads").Step} Step */

const TYPE = "PacelineOptimizePreset";
const REPORT = "PacelineOptimizationReport";

/** What is handed from node to node, by the name of the input. */
const PASSED_ON = { model: "MODEL", vae: "VAE" };

/**
 * @param {LGraphNode} node
 * @param {import("./store.js").ActivityStore} store
 * @returns {import("@comfyorg/comfyui-frontend-types").ComfyExtension["getNodeMenuItems"] extends
 *   ((node: any) => infer Items) | undefined ? Items : never}
 */
export function expandMenuItems(node, store) {
  if (node.type !== TYPE) return [];
  const steps = store.entry(openWorkflow(), executionIdOf(node) ?? "")?.steps ?? [];
  const content = steps.length ? words("expand") : words("expandAfterRun");
  return [{ content, disabled: steps.length === 0, callback: () => expand(node, steps) }];
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
