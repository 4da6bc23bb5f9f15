// The search for other settings: which picture the server wants drawn next, and what a trade changes in the workflow.

import { asOneStep, nodeAt } from "./graph.js";
import { insertOn, takeOut } from "./insert.js";
import { runPrompt } from "./run_prompt.js";
import { ask } from "./server.js";
import { sourceOf } from "./wires.js";

/** Served by server/routes.py. */
const ROUTE = "/paceline/search";

/** @typedef {ReturnType<typeof asked>} Asked */
/** @typedef {{asked: Asked, state: SearchState, drawn: unknown[]}} Search as it begins, and what was drawn so far */

/**
 * @param {Prompt} prompt
 * @param {Inserted} inserted
 * @param {string} choice
 */
function asked(prompt, { wire, nodes }, choice) {
  const receivers = wire.receivers.map(({ node, input }) => ({ node: wire.prefix + node.id, input: node.inputs[input].name }));
  const fixed = /** @type {SearchState["sites"]} */ ([]);
  return { prompt, receivers, chain: nodes.map(({ id }) => wire.prefix + id), choice, fixed };
}

/** @typedef {{kept?: string[], faster?: number, most?: number}} Beside ids of nodes that make a step so many times faster */

/**
 * @param {Asked} search
 * @param {unknown[]} [drawn] so far
 * @param {Beside} [beside]
 * @returns {Promise<SearchState>}
 */
function next(search, drawn = /** @type {unknown[]} */ ([]), beside = /** @type {Beside} */ ({})) {
  return ask(ROUTE, { ...search, kept: [], faster: 1, ...beside, drawn });
}

/**
 * @param {Prompt} prompt
 * @param {Inserted} inserted
 * @param {string} choice
 * @returns {Promise<Search | null>} null where nothing can be searched
 */
export async function findSearch(prompt, inserted, choice) {
  if (inserted.wire.name !== "model") return null;
  const search = asked(prompt, inserted, choice);
  const first = await next(search);
  search.fixed = first.sites.filter(({ node, input }) => !widgetOf(node, input));
  const state = search.fixed.length ? await next(search) : first;
  return state.why_not ? null : { asked: search, state, drawn: [] };
}

/**
 * Draw until all is known, or it was work enough, or somebody stops it: what was found by then is told either way.
 * @param {Search} search
 * @param {Beside} beside
 * @param {(state: SearchState) => void} tell
 * @param {AbortSignal} cancelled
 */
export async function runSearch({ asked, drawn }, beside, tell, cancelled) {
  for (;;) {
    const state = await next(asked, drawn, beside);
    tell(state);
    if (!state.prompt) return;
    drawn.push(...(await runPrompt(state.prompt, ({ paceline_tried }) => paceline_tried, undefined, cancelled)));
  }
}

/**
 * Change the workflow to other settings. One step back with undo.
 * @param {Inserted} inserted
 * @param {Trade} trade
 */
export function applyTrade({ wire, nodes }, trade) {
  asOneStep(() => {
    if (!trade.with_nodes) takeOut(nodes.filter((node) => node.graph), wire.name);
    const [{ node, input }] = wire.receivers;
    insertOn({ ...wire, ...sourceOf(node, node.inputs[input].name) }, trade.steps);
    for (const { node: id, input: name, after } of trade.edits) {
      const widget = widgetOf(id, name);
      if (!widget) continue;
      widget.value = after;
      widget.callback?.(after);
    }
  });
}

/**
 * @param {string} id of a node
 * @param {string} name
 * @returns {NonNullable<LGraphNode["widgets"]>[number] | undefined} undefined where it is not there, or comes over a link
 */
function widgetOf(id, name) {
  const node = nodeAt(id);
  const linked = node?.inputs?.some((slot) => slot.name === name && slot.link != null);
  return linked ? undefined : node?.widgets?.find((widget) => widget.name === name);
}
