// Nodes of ours put on a wire: made, set, connected and laid where nothing else lies.

import { createNode } from "../frontend/comfy.js";
import { layInRow } from "./free_place.js";
import { connectSource, inputOf } from "./wires.js";

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
 */
export function insertOn(wire, steps) {
  const { graph, name, receivers } = wire;
  const made = steps.flatMap((step) => makeNode(step) ?? []).filter((node) => inputOf(node, name) >= 0);
  if (!made.length) return [];
  for (const node of made) graph.add(node);
  const [first] = receivers;
  layInRow(graph, made, [first.node.pos[0] - 60, first.node.pos[1]]);
  lead(wire, made);
  return made;
}

/**
 * Lead a wire through the nodes that take it, to all its receivers.
 * @param {Omit<Wire, "prefix" | "receivers"> & {receivers: Receiver[]}} wire
 * @param {LGraphNode[]} nodes in order
 */
export function lead({ graph, name, receivers, ...source }, nodes) {
  let { origin, slot } = source;
  for (const node of nodes) {
    if (inputOf(node, name) < 0) continue;
    connectSource({ graph, origin, slot }, { node, input: inputOf(node, name) });
    const output = outputOf(node, name);
    if (output >= 0) [origin, slot] = [node.id, output];
  }
  for (const receiver of receivers) connectSource({ graph, origin, slot }, receiver);
}

/**
 * @param {LGraphNode} node
 * @param {string} name of the input that it hands on
 * @returns {number} -1 if it hands on none
 */
export function outputOf(node, name) {
  return node.outputs.findIndex((slot) => slot.type === name.toUpperCase());
}
