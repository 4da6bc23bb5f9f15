// Finding our nodes in the workflow that is open.

import { app } from "./comfy.js";

/** Every node of this pack has an id that starts like this. */
const PREFIX = "Paceline";

/**
 * @param {unknown} type of a node
 * @returns {boolean} whether it is one of ours
 */
export function isOurType(type) {
  return String(type ?? "").startsWith(PREFIX);
}

/**
 * @param {LGraphNode} node
 * @returns {string | undefined} its id, also in `nodeCreated`, where `node.type` is not set yet
 */
export function comfyClassOf(node) {
  return /** @type {{comfyClass?: string}} */ (/** @type {unknown} */ (node.constructor)).comfyClass;
}

/** @returns {string} the id of the workflow that is open; the server gets it with each prompt */
export function openWorkflow() {
  return String(app.rootGraph?.id ?? "");
}

/**
 * @param {string} id of a workflow
 * @returns {string} what its tab is called; "" where it is in no tab
 */
export function workflowName(id) {
  /** @type {{filename: string, activeState: {id?: string} | null}[]} */
  const open = app.extensionManager.workflow?.openWorkflows ?? [];
  return open.find(({ activeState }) => activeState?.id === id)?.filename ?? "";
}

/** @returns {SavedWorkflow} the open workflow, as it would be saved */
export function savedWorkflow() {
  return /** @type {any} */ (app.rootGraph?.serialize() ?? { nodes: [] }); // litegraph's type allows nodes without a type
}

/** @returns {Promise<Prompt>} the open workflow in the form in which ComfyUI runs it */
export async function openPrompt() {
  return /** @type {Prompt} */ (/** @type {unknown} */ ((await app.graphToPrompt()).output));
}

/**
 * @param {LGraphNode} node
 * @returns {LGraph | undefined} the graph inside of a subgraph node
 */
export function inside(node) {
  return /** @type {{subgraph?: LGraph}} */ (node).subgraph;
}

/**
 * Find a node by its execution id, e.g. "12:5" for node 5 inside of the subgraph node 12.
 * @param {string} executionId
 * @returns {LGraphNode | undefined} undefined if it is not in the open workflow
 */
export function nodeAt(executionId) {
  /** @type {LGraph | undefined} */
  let graph = app.rootGraph;
  /** @type {LGraphNode | undefined} */
  let node;
  for (const id of executionId.split(":")) {
    node = graph?.getNodeById(id) ?? undefined;
    graph = node && inside(node);
  }
  return node;
}

/**
 * @param {string} executionId
 * @returns {LGraphNode | undefined} undefined if it is not in the open workflow, or not one of ours
 */
export function findNode(executionId) {
  const node = nodeAt(executionId);
  return isOurType(node?.type) ? node : undefined;
}

/**
 * List the open workflow's graphs: the outermost, and those inside of subgraph nodes.
 * @param {LGraph} [graph]
 * @param {string} [prefix] of the execution ids
 * @returns {{graph: LGraph, prefix: string}[]}
 */
function allGraphs(graph = app.rootGraph, prefix = "") {
  const inner = (graph?.nodes ?? []).flatMap((node) => {
    const subgraph = inside(node);
    return subgraph ? allGraphs(subgraph, `${prefix}${node.id}:`) : [];
  });
  return graph ? [{ graph, prefix }, ...inner] : [];
}

/**
 * @param {LGraph} graph
 * @returns {string | undefined} what the execution ids of its nodes begin with; undefined if it is not in the open workflow
 */
export function prefixOf(graph) {
  return allGraphs().find((found) => found.graph === graph)?.prefix;
}

/**
 * Do something to the open workflow that is undone in one step.
 * @template Result
 * @param {() => Result} action
 */
export function asOneStep(action) {
  const graph = app.rootGraph;
  graph.beforeChange?.();
  try {
    return action();
  } finally {
    graph.afterChange?.();
  }
}

/**
 * List the nodes of the open workflow with their execution ids, those in subgraphs last.
 * @param {LGraph} [graph] those in it alone
 * @param {string} [prefix] of the execution ids
 */
export function nodesWithIds(graph, prefix) {
  return allGraphs(graph, prefix).flatMap((found) => found.graph.nodes.map((node) => ({ id: found.prefix + node.id, node })));
}

/** @returns {{id: string, type: string, title: string, values: string[]}[]} samplers that are switched off, and nodes with the files that they name: they are in no prompt */
export function bypassedNodes() {
  return nodesWithIds().flatMap(({ id, node }) => {
    const { mode, type, widgets } = node;
    const values = (widgets ?? []).map(({ value }) => String(value)).filter((value) => /\.(safetensors|sft|ckpt|pt)$/i.test(value));
    const off = mode === 2 || mode === 4;
    return off && (values.length || /sampler/i.test(String(type))) ? [{ id, type: String(type), title: node.getTitle(), values }] : [];
  });
}

/** @type {typeof nodesWithIds} those of ours */
export function ourNodes(graph, prefix) {
  return nodesWithIds(graph, prefix).filter(({ node }) => isOurType(node.type));
}

/**
 * @param {LGraphNode} node one of ours
 * @returns {string | undefined} its execution id: the first, where its subgraph is used more than once; undefined if it is
 *   not in the open workflow
 */
export function executionIdOf(node) {
  return ourNodes().find((candidate) => candidate.node === node)?.id;
}
