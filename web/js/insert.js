// Nodes of ours put on a wire: made, set, connected and laid where nothing else lies.

import { createNode } from "./comfy.js";
import { layInRow } from "./place.js";
import { connectSource } from "./wires.js";

/** @typedef {import("./graph.js").LGraphNode} LGraphNode */
/** @typedef {import("./payloads").Step} Step */
/** @typedef {import("./wires.js").Wire} Wire */

/**
 * @param {Step} step
 * @returns {LGraphNode | null} the step's node, in no graph yet; null where this version of the pack has none
 */
export function makeNode(step) {
  const made = createNode(step.node);
  for (const widget of made?.widgets ?? []) {
    if (widget.name in step.inputs) widget.value = /** @type {string} */ (step.inputs[widget.name]);
  }
  return made;
}

/**
 * Put nodes on a wire. Steps that change something else than what the wire hands on are left out.
 * @param {Wire} wire
 * @param {Step[]} steps in order
 * @returns {LGraphNode[]}
 */
export function insertOn(wire, steps) {
  const { graph, name, receivers } = wire;
  const made = steps.flatMap((step) => makeNode(step) ?? []).filter((node) => inputOf(node, name) >= 0);
  if (!made.length) return [];
  for (const node of made) graph.add(node);
  const [first] = receivers;
  layInRow(graph, made, [first.node.pos[0] - 60, first.node.pos[1]]);
  connectSource(wire, made[0], inputOf(made[0], name));
  made.slice(1).forEach((node, index) => made[index].connect(0, node, inputOf(node, name)));
  const last = made[made.length - 1];
  for (const { node, input } of receivers) last.connect(0, node, input);
  return made;
}

/**
 * Take nodes of ours out again, which hand on what they are given.
 * @param {LGraphNode[]} nodes
 * @param {string} name of the input
 */
export function takeOut(nodes, name) {
  for (const node of nodes) {
    const { graph } = node;
    const link = node.getInputLink(inputOf(node, name));
    for (const id of [...(node.outputs[0]?.links ?? [])]) {
      const leaving = graph?.links.get(id);
      const receiver = leaving && graph?.getNodeById(leaving.target_id);
      if (!graph || !leaving || !receiver || !link) continue;
      connectSource({ graph, origin: link.origin_id, slot: link.origin_slot }, receiver, leaving.target_slot);
    }
    graph?.remove(node);
  }
}

/**
 * @param {LGraphNode} node
 * @param {string} name
 * @returns {number} -1 if it has no such input
 */
function inputOf(node, name) {
  return node.inputs.findIndex((slot) => slot.name === name);
}
