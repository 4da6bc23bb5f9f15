// What trials have found on this machine, by what was sampled and by the choice. Kept by the server, with the user's settings.

import { api, app } from "./comfy.js";
import { describe } from "./speed_history.js";

const SETTING = /** @type {any} */ ("Paceline.Trials"); // the frontend's types list the frontend's settings only
const MOST = 200;

/** @typedef {{kept: import("./payloads").Step[], sentence: string}} Known what was kept, and what was said of it */
/** @typedef {import("./wires.js").Wire} Wire */

/** @returns {Promise<Record<string, Known>>} */
async function load() {
  try {
    return /** @type {any} */ (await api.getSetting(SETTING)) ?? {};
  } catch {
    return {};
  }
}

/**
 * @param {Wire[]} wires
 * @param {string[]} choices
 * @returns {Promise<Map<Wire, Record<string, Known>>>} what is known for each wire into a sampler, by choice
 */
export async function recall(wires, choices) {
  const known = await load();
  const found = new Map();
  for (const wire of wires.filter(({ name }) => name === "model")) {
    const key = await keyOf(wire);
    const entries = choices.flatMap((choice) => (known[`${key} ${choice}`] ? [[choice, known[`${key} ${choice}`]]] : []));
    if (entries.length) found.set(wire, Object.fromEntries(entries));
  }
  return found;
}

/**
 * @param {Wire} wire
 * @param {string} choice
 * @param {Known} outcome
 */
export async function remember(wire, choice, outcome) {
  const known = await load();
  const key = `${await keyOf(wire)} ${choice}`;
  delete known[key]; // the newest stand at the end
  known[key] = outcome;
  for (const old of Object.keys(known).slice(0, -MOST)) delete known[old];
  await api.storeSetting(SETTING, /** @type {any} */ (known));
}

/**
 * @param {Wire} wire
 * @returns {Promise<string>} the same for the same model, size, batch and sampler, with our nodes or without
 */
async function keyOf({ prefix, receivers }) {
  const { output } = await app.graphToPrompt();
  const prompt = /** @type {import("./trial.js").Prompt} */ (/** @type {unknown} */ (output));
  return describe(prompt, prefix + receivers[0].node.id).key;
}
