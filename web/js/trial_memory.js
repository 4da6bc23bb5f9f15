// What trials have found on this machine, by what was sampled and by the choice. Kept by the server, with the user's settings.

import { api } from "./comfy.js";
import { describe } from "./speed_history.js";

const SETTING = /** @type {any} */ ("Paceline.Trials"); // the frontend's types list the frontend's settings only
const MOST = 200;

/** @typedef {import("./payloads").Judged} Judged */
/** @typedef {import("./payloads").Step} Step */
/** @typedef {Pick<import("./trial.js").Finding, "speedup" | "quality" | "seed_share">} Best */
/** @typedef {{best: Best | null, once: number, saves: number}} Outcome as of `TrialState` */
/** @typedef {{kept: Step[], outcome?: Outcome, sentence?: string}} Known what was kept, and what came of it; earlier versions
 *   kept what they said of it */
/** @typedef {{choices: Record<string, Known>, nodes: Record<string, Judged>}} Found by choice; by node and settings */
/** @typedef {import("./prompt.js").Prompt} Prompt */
/** @typedef {import("./wires.js").Wire} Wire */

/** @returns {Promise<Record<string, any>>} */
async function load() {
  try {
    return /** @type {any} */ (await api.getSetting(SETTING)) ?? {};
  } catch {
    return {};
  }
}

/**
 * @param {Prompt} prompt
 * @param {Wire[]} wires
 * @param {string[]} choices
 * @returns {Promise<Map<Wire, Found>>} what is known for each wire
 */
export async function recall(prompt, wires, choices) {
  const known = await load();
  return new Map(
    wires.map((wire) => {
      const key = keyOf(prompt, wire);
      const entries = choices.flatMap((choice) => (known[`${key} ${choice}`] ? [[choice, known[`${key} ${choice}`]]] : []));
      return [wire, { choices: Object.fromEntries(entries), nodes: known[`${key} nodes`] ?? {} }];
    }),
  );
}

/**
 * @param {Prompt} prompt that was measured
 * @param {import("./faster.js").Inserted} inserted
 * @param {string} choice
 * @param {Pick<import("./payloads").TrialState, "judged" | "best" | "once" | "saves">} found
 */
export async function remember(prompt, { wire, steps, nodes }, choice, { judged, best, once, saves }) {
  const known = await load();
  const key = keyOf(prompt, wire);
  const stepOf = (/** @type {string} */ id) => steps.find(({ node }) => nodes.some((one) => wire.prefix + one.id === id && one.type === node));
  const tried = judged.flatMap((one) => {
    const step = stepOf(one.node);
    return step ? [{ step, one }] : [];
  });
  const kept = tried.flatMap(({ step, one }) => (one.kept ? [step] : []));
  const found = Object.fromEntries(tried.map(({ step, one }) => [stepKey(step), one]));
  /** @type {Best | null} */
  const measured = best && { speedup: best.speedup, quality: best.quality, seed_share: best.seed_share };
  const outcome = { best: measured, once, saves };
  const entries = { [`${key} ${choice}`]: { kept, outcome }, [`${key} nodes`]: { ...known[`${key} nodes`], ...found } };
  for (const [name, entry] of Object.entries(entries)) {
    delete known[name]; // the newest stand at the end
    known[name] = entry;
  }
  for (const old of Object.keys(known).slice(0, -MOST)) delete known[old];
  await api.storeSetting(SETTING, /** @type {any} */ (known));
}

/**
 * @param {Step} step
 * @returns {string} another one for other settings
 */
export function stepKey({ node, inputs }) {
  return `${node} ${JSON.stringify(inputs)}`;
}

/**
 * @param {Prompt} prompt
 * @param {Wire} wire
 * @returns {string} the same for the same model, size, batch and sampler, with our nodes or without
 */
function keyOf(prompt, { name, prefix, receivers }) {
  return `${name} ${describe(prompt, prefix + receivers[0].node.id).key}`;
}
