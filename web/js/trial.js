// Runs the measurements of a trial: the server says what to compare next, and what the findings mean.

import { runPrompt } from "./run_prompt.js";
import { ask } from "./server.js";

/** @typedef {ReturnType<typeof findingOf>} Finding */

/** Served by server/routes.py. */
const ROUTE = "/paceline/trial";

/**
 * @param {Prompt} prompt
 * @param {Inserted} inserted
 * @param {string} choice
 * @param {string[]} [others] execution ids of nodes that are tried in another way
 */
export function sceneOf(prompt, { wire, nodes }, choice, others = /** @type {string[]} */ ([])) {
  const { name, prefix } = wire;
  const chain = nodes.map(({ id }) => prefix + id).filter((id) => !others.includes(id));
  return { prompt, name, chain, choice };
}

/**
 * @param {Comparison} comparison
 * @returns what the server needs of it to judge
 */
function findingOf({ found, quality, verdict, compiling, speedup, speedup_of, seconds, seed_share, about }) {
  return { found, quality, verdict, compiling, speedup, speedup_of, seconds, seed_share, about };
}

/**
 * @param {Scene} scene
 * @param {Finding[]} findings so far
 * @returns {Promise<TrialState>} what to measure next, and what is known
 */
export function next(scene, findings) {
  return ask(ROUTE, { ...scene, findings });
}

/**
 * Run a comparison and wait for its end.
 * @param {Prompt} prompt
 * @param {(share: number) => void} progress
 * @param {AbortSignal} cancelled
 */
export async function measure(prompt, progress, cancelled) {
  return findingOf(await runPrompt(prompt, ({ paceline_comparison }) => paceline_comparison?.[0], progress, cancelled));
}
