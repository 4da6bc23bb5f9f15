// Runs that this page has not seen from the beginning: before a reload, or from another tab.

import { api } from "./comfy.js";

/** @typedef {import("./payloads").RunPayload} RunPayload */

/** Served by server/routes.py. */
const ROUTE = "/paceline/run";

/**
 * Ask the server about a run.
 * @param {{prompt_id: string} | {workflow: string}} which
 * @returns {Promise<RunPayload | null>} null if it knows none
 */
export async function askForRun(which) {
  try {
    const response = await api.fetchApi(`${ROUTE}?${new URLSearchParams(which)}`);
    const found = response.ok ? await response.json() : {};
    return found.prompt_id ? found : null;
  } catch {
    return null; // offline: the messages stop as well
  }
}
