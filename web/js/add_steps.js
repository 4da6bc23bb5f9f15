// Put nodes of a recipe on the wires that a node measures, for all others that take what it is given.

import { app } from "./comfy.js";
import { insertOn } from "./insert.js";
import { words } from "./words.js";

/** @typedef {import("./graph.js").LGraphNode} LGraphNode */
/** @typedef {import("./wires.js").Wire} Wire */

/**
 * Lead what a node is given through new nodes to all others that take it. The node itself keeps the plain one, as it
 * measures against it. One step back with undo.
 * @param {LGraphNode} node
 * @param {import("./payloads").Step[]} steps
 */
export function addSteps(node, steps) {
  const { graph } = node;
  const wires = ["model", "vae"].flatMap((name) => {
    const wire = wireInto(node, name);
    return wire?.receivers.length ? [wire] : [];
  });
  if (!graph || !wires.length) {
    app.extensionManager.toast.add({ severity: "warn", summary: words("nothingTakesIt"), life: 6000 });
    return;
  }
  graph.beforeChange();
  const made = wires.flatMap((wire) => insertOn(wire, steps));
  graph.afterChange();
  app.canvas.selectItems(made);
}

/**
 * @param {LGraphNode} node
 * @param {string} name of its input
 * @returns {Wire | null} from where its input comes to all others; null if nothing is connected
 */
function wireInto(node, name) {
  const { graph } = node;
  const input = node.inputs.findIndex((slot) => slot.name === name);
  const link = input < 0 ? null : node.getInputLink(input);
  const source = link && graph?.getNodeById(link.origin_id);
  if (!graph || !link || !source) return null;
  const receivers = (source.outputs[link.origin_slot].links ?? []).flatMap((id) => {
    const other = graph.links.get(id);
    const receiver = other && graph.getNodeById(other.target_id);
    return other && receiver && receiver !== node ? [{ node: receiver, input: other.target_slot }] : [];
  });
  return { name, graph, prefix: "", origin: link.origin_id, slot: link.origin_slot, receivers };
}
