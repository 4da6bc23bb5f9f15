// Questions to the server that are answered with JSON.

import { api } from "./comfy.js";
import { said } from "./said.js";

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
  if (!("node_errors" in answer)) return said(answer.error ?? "", answer.phrase);
  const [first] = Object.values(answer.node_errors).flatMap(({ errors }) => errors);
  return first ? `${first.message}: ${first.details}` : (answer.error?.message ?? "");
}
