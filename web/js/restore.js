// What the nodes of earlier runs have shown, from the server's history: after a reload, and in a second tab.

import { api } from "./comfy.js";
import { newsOf } from "./events.js";

/** Runs that are looked at; what is older is not in an open workflow any more. */
const RUNS = 40;

/**
 * @typedef {object} HistoryEntry
 * @property {unknown[]} prompt number, id, nodes, and what the page has sent beside them
 * @property {Record<string, import("./payloads").NodeOutput>} outputs by execution id
 */

/** @param {import("./store.js").ActivityStore} store */
export async function restore(store) {
  try {
    const response = await api.fetchApi(`/history?max_items=${RUNS}`);
    /** @type {Record<string, HistoryEntry>} */
    const history = response.ok ? await response.json() : {};
    for (const { prompt, outputs } of Object.values(history).reverse()) {
      const sent = /** @type {{extra_pnginfo?: {workflow?: {id?: string}}}} */ (prompt[3]);
      const workflow = sent?.extra_pnginfo?.workflow?.id;
      for (const [node, output] of workflow ? Object.entries(outputs) : []) {
        const news = newsOf(output);
        if (news) store.fill(String(workflow), node, news);
      }
    }
  } catch {
    // Offline, or a server without a history: the page shows what it sees from now on.
  }
}
