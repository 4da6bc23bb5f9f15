// Questions to the server that are answered with JSON, and addresses of pictures.

import { api } from "./comfy.js";
import { nodeAt } from "./graph.js";

/** Served by service/routes.py. */
const RUN = "/paceline/run";
const SAMPLINGS = "/paceline/samplings";

/**
 * @param {string} route
 * @param {unknown} [sent] posted if it is given
 * @param {string} [method]
 * @returns {Promise<any>} the answer
 * @throws {Error} with the server's own words
 */
export async function ask(route, sent, method = sent === undefined ? "GET" : "POST") {
  const headers = { "Content-Type": "application/json" };
  const response = await api.fetchApi(route, { method, headers, body: JSON.stringify(sent) });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(refusal(answer) || response.statusText);
  return answer;
}

/** @typedef {{error?: {message?: string}, node_errors: Record<string, {class_type?: string, errors: {message: string, details: string}[]}>}} Unrunnable */

/**
 * @param {{error?: string} | Unrunnable} answer
 * @returns {string} why: of our routes a sentence, of ComfyUI's what is wrong with the first node
 */
function refusal(answer) {
  if (!("node_errors" in answer)) return answer.error ?? "";
  const [first] = Object.entries(answer.node_errors).flatMap(([id, { class_type, errors }]) => errors.map((one) => ({ ...one, name: nodeAt(id)?.getTitle() ?? class_type })));
  return first ? `${first.name}: ${first.message}: ${first.details}` : (answer.error?.message ?? "");
}

/**
 * @param {{exception_message?: string, exception_type?: string, node_id?: string, node_type?: string}} failed
 * @returns {string} what ComfyUI says of a prompt that failed, and of which node; of an exception without words, its type
 */
export function failureOf({ exception_message = "", exception_type = "", node_id = "", node_type = "" }) {
  const why = exception_message.trim() || exception_type;
  const name = (node_id && nodeAt(node_id)?.getTitle()) || node_type;
  return why && name ? `${name}: ${why}` : why;
}

/**
 * Ask about the run of a prompt.
 * @param {string} promptId
 * @returns {Promise<RunPayload | null | undefined>} null if the server knows none, undefined if it does not answer
 */
export async function askForRun(promptId) {
  const route = `${RUN}?${new URLSearchParams({ prompt_id: promptId })}`;
  const found = await ask(route).catch(() => undefined); // offline: messages stop as well
  return found && !found.workflow ? null : found;
}

/**
 * Ask how fast the samplers of a run were without our nodes.
 * @param {string} promptId
 * @returns {Promise<Samplings>} none if the server does not say
 */
export function samplingsOf(promptId) {
  return ask(`${SAMPLINGS}?${new URLSearchParams({ prompt_id: promptId })}`).catch(() => ({}));
}

/**
 * @param {SavedImage} image that ComfyUI has written
 * @returns {string} its address
 */
export function address(image) {
  return api.apiURL(`/view?${new URLSearchParams({ ...image })}`);
}
