// The wires on which something can be made faster: a MODEL into a sampler, a VAE into what decodes or encodes.

import { allGraphs, inside, isOurType } from "./graph.js";

/** @typedef {import("./graph.js").LGraph} LGraph */
/** @typedef {import("./graph.js").LGraphNode} LGraphNode */

/**
 * @typedef {object} Wire one source, and everything that it is to go faster for
 * @property {"model" | "vae"} name of the inputs of our nodes
 * @property {string} type of the slots
 * @property {LGraph} graph
 * @property {string} prefix of the execution ids in that graph
 * @property {LGraphNode[]} around the subgraph nodes that the graph is inside of, the innermost first
 * @property {number | string} origin id of the node it comes from; that of the graph's own input, in a subgraph
 * @property {number} slot of the origin
 * @property {{node: LGraphNode, input: number}[]} receivers
 */

/** What a node that samples gives out. */
const SAMPLED = ["LATENT", "GUIDER", "IMAGE", "VIDEO", "AUDIO"];

/** What a node that uses a VAE gives out. */
const CODED = ["IMAGE", "LATENT", "VIDEO", "AUDIO"];

const KINDS = /** @type {const} */ ([
  { name: "model", type: "MODEL", results: SAMPLED },
  { name: "vae", type: "VAE", results: CODED },
]);

/** @returns {Wire[]} of the open workflow, those in subgraphs included */
export function findWires() {
  /** @type {Map<string, Wire>} */
  const wires = new Map();
  for (const { graph, prefix, around } of allGraphs()) {
    for (const node of graph.nodes) {
      if (node.mode !== 0 || isOurType(node.type) || inside(node)) continue;
      for (const { name, type, results } of KINDS) {
        const outputs = (node.outputs ?? []).map((slot) => String(slot.type));
        if (outputs.includes(type) || !outputs.some((output) => results.includes(output))) continue;
        for (const [input, slot] of (node.inputs ?? []).entries()) {
          const link = slot.type === type && slot.link != null ? node.getInputLink(input) : null;
          if (!link) continue;
          const key = [prefix, type, link.origin_id, link.origin_slot].join(" ");
          const { origin_id: origin, origin_slot } = link;
          const place = { name, type, graph, prefix, around, origin, slot: origin_slot };
          const wire = wires.get(key) ?? { ...place, receivers: [] };
          wires.set(key, wire);
          wire.receivers.push({ node, input });
        }
      }
    }
  }
  return [...wires.values()];
}

/**
 * @param {Wire} wire
 * @returns {LGraphNode[]} the nodes that it goes through on its way from the loader, the last first
 */
export function upstream({ graph, around, type, origin, slot }) {
  /** @type {LGraphNode[]} */
  const found = [];
  const outside = [...around];
  /** @type {{origin_id: number | string, origin_slot: number} | null} */
  let link = { origin_id: origin, origin_slot: slot };
  while (link) {
    const node = graph.getNodeById(link.origin_id);
    if (node && found.includes(node)) break;
    if (node) {
      found.push(node);
      const input = (node.inputs ?? []).findIndex((entry) => entry.type === type && entry.link != null);
      link = input < 0 ? null : node.getInputLink(input);
    } else {
      // It comes from the graph's own input: go on outside. (A subgraph node's `getInputLink` gives the link inside.)
      const outer = outside.shift();
      graph = outer?.graph ?? graph;
      link = graph.links.get(outer?.inputs[link.origin_slot]?.link ?? -1) ?? null;
    }
  }
  return found;
}

/**
 * Connect the source of a wire with an input.
 * @param {Wire} wire
 * @param {LGraphNode} node
 * @param {number} input
 */
export function connectSource({ graph, origin, slot }, node, input) {
  const source = graph.getNodeById(origin);
  if (source) source.connect(slot, node, input);
  // Else it is the graph's own input: a subgraph has its inputs as objects that connect themselves.
  else /** @type {any} */ (graph).inputs[slot].connect(node.inputs[input], node);
}
