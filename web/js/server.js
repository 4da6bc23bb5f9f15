// Questions to the server that are answered with JSON, and addresses of pictures.

import { api } from "./comfy.js";

/** Served by server/routes.py. */
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

/** @typedef {{error?: {message?: string}, node_errors: Record<string, {errors: {message: string, details: string}[]}>}} Unrunnable */

/**
 * @param {Partial<import("./payloads").Refusal> | Unrunnable} answer
 * @returns {string} why: of our routes a sentence, of ComfyUI's what is wrong with the first node
 */
function refusal(answer) {
  if (!("node_errors" in answer)) return answer.error ?? "";
  const [first] = Object.values(answer.node_errors).flatMap(({ errors }) => errors);
  return first ? `${first.message}: ${first.details}` : (answer.error?.message ?? "");
}

/**
 * @param {{exception_message?: string, exception_type?: string}} failed
 * @returns {string} what ComfyUI says of a prompt that failed; of an exception without words, its type
 */
export function failureOf({ exception_message = "", exception_type = "" }) {
  return exception_message.trim() || exception_type;
}

/**
 * Ask about the run of a prompt.
 * @param {string} promptId
 * @returns {Promise<RunPayload | null | undefined>} null if the server knows none, undefined if it does not answer
 */
export async function askForRun(promptId) {
  const route = `${RUN}?${new URLSearchParams({ prompt_id: promptId })}`;
  const found = await ask(route).catch(() => undefined); // offline: messages stop as well
  return found && !found.outcome ? null : found;
}

/**
 * Ask what samplers sample, and how fast that was without our nodes.
 * @param {{prompt: Prompt} | {prompt_id: string}} asked
 * @returns {Promise<import("./payloads").Samplings>} none if the server does not say
 */
export function samplingsOf(asked) {
  return ask(SAMPLINGS, asked).catch(() => ({}));
}

/**
 * @param {import("./payloads").SavedImage} image that ComfyUI has written
 * @returns {string} its address
 */
export function address(image) {
  return api.apiURL(`/view?${new URLSearchParams({ ...image })}`);
}
