// What each of our nodes is set to, read from a workflow as it is saved: a run's, or the open one's.

import { isOurType } from "./graph.js";

/**
 * @param {SavedWorkflow} workflow
 * @returns {Map<string, string>} for each of our nodes a text that is another one if a widget, a wire or the mode is
 */
export function settingsOf(workflow) {
  const subgraphs = new Map((workflow.definitions?.subgraphs ?? []).map((graph) => [graph.id, graph]));
  /** @type {Map<string, string>} */
  const found = new Map();
  /**
   * @param {SavedGraph} graph
   * @param {string} prefix of the execution ids
   */
  const read = (graph, prefix) => {
    /** @type {Map<number, string> | undefined} */
    let origins;
    for (const node of graph.nodes) {
      const inside = subgraphs.get(node.type);
      if (inside) read(inside, `${prefix}${node.id}:`);
      if (!isOurType(node.type)) continue;
      origins ??= originsOf(graph);
      // Inputs without a wire are left out: whether widgets are listed among them is the frontend's affair.
      const wired = (node.inputs ?? []).filter(({ link }) => link != null);
      const wires = wired.map(({ name, link }) => [name, origins?.get(/** @type {number} */ (link))]);
      found.set(prefix + node.id, JSON.stringify([node.mode ?? 0, wires, node.widgets_values ?? []]));
    }
  };
  read(workflow, "");
  return found;
}

/**
 * @param {SavedGraph} graph
 * @returns {Map<number, string>} node and slot that each link comes from, by the link's id
 */
function originsOf({ links = [] }) {
  return new Map(
    links.map((link) => {
      if (Array.isArray(link)) return [link[0], `${link[1]}.${link[2]}`];
      const { id, origin_id, origin_slot } = /** @type {any} */ (link);
      return [id, `${origin_id}.${origin_slot}`];
    }),
  );
}
