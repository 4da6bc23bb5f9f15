// What trials have found on this machine, by what was sampled and by the choice.

import { Kept } from "./kept.js";
import { describe } from "./speed_history.js";

/** @type {Kept<any>} */
const kept = new Kept("Paceline.Trials", 200);

/** @typedef {Pick<Finding, "speedup" | "quality" | "seed_share">} Best */
/** @typedef {{best: Best | null, once: number, saves: number}} Outcome as of `TrialState` */
/** @typedef {{kept: Step[], outcome: Outcome}} Known what was kept, and what came of it */
/** @typedef {{choices: Record<string, Known>, nodes: Record<string, Judged>}} Found by choice; by node and settings */

/**
 * @param {Prompt} prompt
 * @param {Wire[]} wires
 * @param {string[]} choices
 * @returns {Promise<Map<Wire, Found>>} what is known for each wire
 */
export async function recall(prompt, wires, choices) {
  const known = await kept.load();
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
 * @param {Inserted} inserted
 * @param {string} choice
 * @param {Pick<TrialState, "judged" | "best" | "once" | "saves">} found
 */
export async function remember(prompt, { wire, steps, nodes }, choice, { judged, best, once, saves }) {
  const known = await kept.load();
  const key = keyOf(prompt, wire);
  const stepOf = (/** @type {string} */ id) => steps.find(({ node }) => nodes.some((one) => wire.prefix + one.id === id && one.type === node));
  const tried = judged.flatMap((one) => {
    const step = stepOf(one.node);
    return step ? [{ step, one }] : [];
  });
  const winners = tried.flatMap(({ step, one }) => (one.kept ? [step] : []));
  const found = Object.fromEntries(tried.map(({ step, one }) => [stepKey(step), one]));
  /** @type {Best | null} */
  const measured = best && { speedup: best.speedup, quality: best.quality, seed_share: best.seed_share };
  const outcome = { best: measured, once, saves };
  const all = { ...known[`${key} nodes`], ...found };
  await kept.store(known, { [`${key} ${choice}`]: { kept: winners, outcome }, [`${key} nodes`]: all });
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
