// Put nodes of a recipe on the wires that a node measures, for all others that take what it is given.

import { app, tell } from "./comfy.js";
import { asOneStep } from "./graph.js";
import { insertOn } from "./insert.js";
import { receiversOf, sourceOf } from "./wires.js";
import { words } from "./words.js";

/**
 * Lead what a node is given through new nodes to all others that take it. The node itself keeps the plain one, as it
 * measures against it. One step back with undo.
 * @param {LGraphNode} node
 * @param {Step[]} steps
 */
export function addSteps(node, steps) {
  const wires = ["model", "vae"].flatMap((name) => wireInto(node, name) ?? []).filter(({ receivers }) => receivers.length);
  if (!wires.length) tell("warn", words("nothingTakesIt"));
  else app.canvas.selectItems?.(asOneStep(() => wires.flatMap((wire) => insertOn(wire, steps))));
}

/**
 * @param {LGraphNode} node
 * @param {string} name of its input
 * @returns {Wire | null} from where its input comes to all others; null if nothing is connected
 */
function wireInto(node, name) {
  const found = sourceOf(node, name);
  const source = found?.graph.getNodeById(found.origin);
  if (!found || !source) return null;
  const others = receiversOf(source, found.slot).filter((one) => one.node !== node);
  const receivers = others.flatMap(({ node: other, input }) => (other ? [{ node: other, input }] : []));
  return { name, prefix: "", ...found, receivers };
}
