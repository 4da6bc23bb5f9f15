// The wires that the server has found in a prompt, as places in the open workflow.

import { nodeAt } from "./graph.js";

/** @typedef {import("./graph.js").LGraph} LGraph */
/** @typedef {import("./graph.js").LGraphNode} LGraphNode */
/** @typedef {import("./payloads").AdvisedWire} AdvisedWire */

/**
 * @typedef {object} Wire one source, and everything that it is to go faster for
 * @property {string} name of the inputs of our nodes: `model`, `vae` or `control_net`
 * @property {LGraph} graph
 * @property {string} prefix of the execution ids in that graph
 * @property {number | string} origin id of the node it comes from; that of the graph's own input, in a subgraph
 * @property {number} slot of the origin
 * @property {{node: LGraphNode, input: number}[]} receivers
 */

/**
 * @param {AdvisedWire} advised
 * @returns {Wire[]} a wire that goes into several subgraphs is one in each of them
 */
export function locate({ name, receivers }) {
  /** @type {Map<string, Wire>} */
  const wires = new Map();
  for (const { node: id, input: inputName } of receivers) {
    const node = nodeAt(id);
    const input = node ? node.inputs.findIndex((slot) => slot.name === inputName) : -1;
    const link = input < 0 ? null : node?.getInputLink(input);
    if (!node?.graph || !link) continue;
    const prefix = id.slice(0, id.lastIndexOf(":") + 1);
    const { origin_id: origin, origin_slot: slot } = link;
    const key = [prefix, origin, slot].join(" ");
    const graph = /** @type {LGraph} */ (node.graph);
    const wire = wires.get(key) ?? { name, graph, prefix, origin, slot, receivers: [] };
    wires.set(key, wire);
    wire.receivers.push({ node, input });
  }
  return [...wires.values()];
}

/**
 * Connect the source of a wire with an input.
 * @param {Pick<Wire, "graph" | "origin" | "slot">} wire
 * @param {LGraphNode} node
 * @param {number} input
 */
export function connectSource({ graph, origin, slot }, node, input) {
  const source = graph.getNodeById(origin);
  if (source) source.connect(slot, node, input);
  // Else it is the graph's own input: a subgraph has its inputs as objects that connect themselves.
  else /** @type {any} */ (graph).inputs[slot].connect(node.inputs[input], node);
}
