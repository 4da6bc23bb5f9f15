// The wires that the server has found in a prompt, as places in the open workflow.

import { nodeAt } from "../frontend/graph.js";

/**
 * @param {{name: string, receivers: {node: string, input: string}[]}} found
 * @returns {Wire[]} a wire that goes into several subgraphs is one in each of them
 */
export function locate({ name, receivers }) {
  /** @type {Map<string, Wire>} */
  const wires = new Map();
  for (const { node: id, input: inputName } of receivers) {
    const node = nodeAt(id);
    const source = node && sourceOf(node, inputName);
    if (!node || !source) continue;
    const prefix = id.slice(0, id.lastIndexOf(":") + 1);
    const key = [prefix, source.origin, source.slot].join(" ");
    const wire = wires.get(key) ?? { name, prefix, ...source, receivers: [] };
    wires.set(key, wire);
    wire.receivers.push({ node, input: inputOf(node, inputName) });
  }
  return [...wires.values()];
}

/**
 * @param {LGraphNode} node
 * @param {string} name
 * @returns {number} -1 if it has no such input
 */
export function inputOf(node, name) {
  return node.inputs.findIndex((slot) => slot.name === name);
}

/**
 * @param {LGraphNode} node
 * @param {string} name of an input
 * @returns {Pick<Wire, "graph" | "origin" | "slot"> | null} what it comes from; null if nothing is connected
 */
export function sourceOf(node, name) {
  const { graph } = node;
  const input = inputOf(node, name);
  const link = input < 0 ? null : node.getInputLink(input);
  return graph && link ? { graph: /** @type {LGraph} */ (graph), origin: link.origin_id, slot: link.origin_slot } : null;
}

/**
 * @param {LGraphNode} node
 * @param {number} slot of its outputs; -1 for none
 * @returns {Receiver[]} what takes it
 */
export function receiversOf({ graph, outputs }, slot) {
  return [...(outputs[slot]?.links ?? [])].flatMap((id) => {
    const link = graph?.links.get(id);
    return link ? [{ node: graph?.getNodeById(link.target_id) ?? null, input: link.target_slot }] : [];
  });
}

/**
 * Connect the source of a wire with what takes it.
 * @param {Pick<Wire, "graph" | "origin" | "slot">} wire
 * @param {Receiver} receiver
 */
export function connectSource({ graph, origin, slot }, { node, input }) {
  const source = graph.getNodeById(origin);
  const own = /** @type {any} */ (graph); // a subgraph has its inputs and outputs as objects that connect themselves
  if (source && node) source.connect(slot, node, input);
  else if (source) own.outputs[input].connect(source.outputs[slot], source);
  else if (node) own.inputs[slot].connect(node.inputs[input], node);
}
