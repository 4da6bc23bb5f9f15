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

/** @typedef {import("./payloads").Refusal} Refusal */

/**
 * @param {{error?: string | {message?: string}, phrase?: Refusal["phrase"], node_errors?: Record<string, {errors: {message: string, details: string}[]}>}} answer
 * @returns {string} why: of our routes a sentence, of ComfyUI's what is wrong with the first node
 */
function refusal({ error, phrase, node_errors }) {
  const [first] = Object.values(node_errors ?? {}).flatMap(({ errors }) => errors);
  if (first) return `${first.message}: ${first.details}`;
  return typeof error === "string" ? said(error, phrase) : (error?.message ?? "");
}
