// Put nodes of a recipe into the graph, between a model and all who take it.

import { app } from "./comfy.js";
import { makeNode } from "./insert.js";
import { layInRow } from "./place.js";

/** @typedef {import("./graph.js").LGraphNode} LGraphNode */

const BELOW = 100;

/** What is handed from node to node, by the name of the input. */
const PASSED_ON = { model: "MODEL", vae: "VAE" };

/**
 * Lead what a node is given through new nodes to all others that take it. The node itself keeps the plain one, as it
 * measures against it. One step back with undo.
 * @param {LGraphNode} node
 * @param {import("./payloads").Step[]} steps
 */
export function addSteps(node, steps) {
  const { graph } = node;
  if (!graph) return;
  graph.beforeChange();
  const nodes = steps.flatMap((step) => makeNode(step) ?? []);
  for (const made of nodes) graph.add(made);
  for (const [name, type] of Object.entries(PASSED_ON)) lead(node, nodes, name, type);
  layInRow(graph, nodes, [node.pos[0] + node.size[0], node.pos[1] + node.size[1] + BELOW]);
  graph.afterChange();
  app.canvas.selectItems(nodes);
}

/**
 * @param {LGraphNode} node
 * @param {LGraphNode[]} nodes
 * @param {string} name of the inputs
 * @param {string} type of the outputs
 */
function lead(node, nodes, name, type) {
  const input = node.inputs.findIndex((slot) => slot.name === name);
  const link = input < 0 ? null : node.getInputLink(input);
  const source = link && node.graph?.getNodeById(link.origin_id);
  if (!link || !source) return;
  const receivers = [...(source.outputs[link.origin_slot].links ?? [])]
    .map((id) => node.graph?.links.get(id))
    .filter((each) => each && each.target_id !== node.id);
  let [from, slot] = [source, link.origin_slot];
  for (const made of nodes) {
    const target = made.inputs.findIndex((candidate) => candidate.name === name);
    const next = made.outputs.findIndex((candidate) => candidate.type === type);
    if (target < 0) continue;
    from.connect(slot, made, target);
    if (next >= 0) [from, slot] = [made, next];
  }
  if (from === source) return;
  for (const each of receivers) {
    const receiver = each && node.graph?.getNodeById(each.target_id);
    if (each && receiver) from.connect(slot, receiver, each.target_slot);
  }
}
