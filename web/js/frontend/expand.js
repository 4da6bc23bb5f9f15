// "Turn into single nodes" in the context menu of Optimize (Preset): the nodes that it applies, in its place.

import { app, attempt, createNode } from "./comfy.js";
import { asOneStep, executionIdOf, openPrompt } from "./graph.js";
import { lead, makeNode, outputOf } from "../faster/insert.js";
import { layInRow } from "../faster/free_place.js";
import { NO_RUN, runPrompt } from "../faster/run_prompt.js";
import { connectSource, receiversOf, sourceOf } from "../faster/wires.js";
import { words } from "./language.js";

const TYPE = "PacelineOptimizePreset";
const REPORT = "PacelineOptimizationReport";

/** The frontend's mode of a node that is neither bypassed nor muted. */
const ALWAYS = 0;

/**
 * @param {LGraphNode} node
 * @returns {MenuItems}
 */
export function expandMenuItems(node) {
  if (node.type !== TYPE) return [];
  const disabled = node.mode !== ALWAYS; // what does not run cannot be asked
  return [{ content: words("expand"), disabled, callback: () => void attempt(() => askAndExpand(node)) }];
}

/** @param {LGraphNode} node */
async function askAndExpand(node) {
  const steps = await stepsOf(node);
  if (executionIdOf(node)) expand(node, steps); // another workflow can be open by now
}

/**
 * Ask the node what it applies: it looks at the model, so that is loaded, but nothing is sampled.
 * @param {LGraphNode} node
 */
async function stepsOf(node) {
  const id = executionIdOf(node) ?? "";
  const report = node.outputs.findIndex(({ type }) => type === "STRING");
  const shown = { [`${NO_RUN}_steps`]: { class_type: "PreviewAny", inputs: { source: [id, report] } } };
  const only = Object.keys(shown);
  return /** @type {Step[]} */ (await runPrompt({ ...(await openPrompt()), ...shown }, ({ paceline_steps }) => paceline_steps, { only }));
}

/**
 * Put the steps' nodes in the place of a node. One step back with undo.
 * @param {LGraphNode} node
 * @param {Step[]} steps
 */
function expand(node, steps) {
  const { graph } = node;
  if (!graph) return;
  const nodes = steps.flatMap((step) => makeNode(step) ?? []);
  asOneStep(() => {
    for (const made of nodes) graph.add(made);
    for (const name of ["model", "vae"]) {
      const source = sourceOf(node, name);
      if (source) lead({ ...source, name, receivers: receiversOf(node, outputOf(node, name)) }, nodes);
    }
    keepReport(node, nodes);
    graph.remove(node);
    layInRow(graph, nodes, [node.pos[0] + node.size[0], node.pos[1]]);
  });
  app.canvas.selectItems?.(nodes);
}

/**
 * Where somebody reads what the preset has applied, let Optimization Report say it of the single nodes.
 * @param {LGraphNode} node
 * @param {LGraphNode[]} nodes which are given the report's node
 */
function keepReport(node, nodes) {
  const { graph } = node;
  const readers = receiversOf(node, node.outputs.findIndex((slot) => slot.type === "STRING"));
  const model = nodes.findLast((made) => made.outputs.some((slot) => slot.type === "MODEL"));
  const report = graph && model && readers.length ? createNode(REPORT) : null;
  if (!graph || !model || !report) return;
  graph.add(report);
  model.connect(0, report, 0);
  for (const receiver of readers) connectSource({ graph, origin: report.id, slot: 0 }, receiver);
  nodes.push(report);
}
