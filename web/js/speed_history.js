// How fast this machine sampled the same thing without our nodes before.

import { isOurType } from "./graph.js";
import { Kept } from "./kept.js";
import { ask } from "./server.js";

const MOST_TIMES = 10;

/** What does not change how long a step takes. */
const FREE = /seed|^text|prompt|^steps$|filename|control_after|start_at|end_at|denoise|noise/;

/** Inputs that a step's time does not depend on: what was drawn before, and how pictures are encoded. */
const PICTURES = /^(latent|samples|image|pixels|mask|vae)/;

/** Our nodes, and those that watch a run: none of them is part of what is sampled. */
const OURS = /^_?Paceline/;

/** What gives back the model without any of our nodes. */
const PLAIN = "PacelineRemoveOptimizations";

/**
 * @param {string} promptId of the run that goes on, or is over
 * @param {string} node the sampler's execution id
 * @returns {Promise<Job | null>} null if the server does not say what it runs
 */
export async function jobOf(promptId, node) {
  try {
    const { queue_running } = await ask("/queue");
    const running = queue_running.find((/** @type {unknown[]} */ [, id]) => id === promptId);
    // A short run is over before the question reaches the server.
    const found = running ?? (await ask(`/history/${promptId}`))[promptId]?.prompt;
    return found ? describe(found[2], node) : null;
  } catch {
    return null;
  }
}

/**
 * @param {Prompt} prompt
 * @param {string} node
 */
export function describe(prompt, node) {
  /** @type {Map<string, string | null>} what comes from an output: nodes share sources, so that paths double with each node */
  const seen = new Map();
  /**
   * @param {string} id
   * @param {number} output
   * @returns {string | null}
   */
  const shape = (id, output) => {
    const place = `${id} ${output}`;
    const known = seen.get(place);
    if (known !== undefined) return known;
    seen.set(place, null); // a workflow that goes in a circle has no end
    const { class_type, inputs } = prompt[id] ?? { class_type: "?", inputs: {} };
    const comesFrom = (/** @type {unknown} */ value) => (isLink(value) ? shape(value[0], value[1]) : value);
    const names = Object.keys(inputs).sort().filter((name) => isLink(inputs[name]) || !FREE.test(name));
    const through = Object.values(inputs).find(isLink);
    const found = OURS.test(class_type)
      ? through && shape(...through)
      : digest(JSON.stringify([class_type, output, ...names.map((name) => [name, comesFrom(inputs[name])])]));
    seen.set(place, found ?? null);
    return found ?? null;
  };
  return { key: shape(node, 0) ?? "", techniques: techniquesBefore(prompt, node) };
}

/**
 * @param {Prompt} prompt
 * @param {string} node
 * @returns {number} how many of our nodes change how long its steps take
 */
function techniquesBefore(prompt, node) {
  const [seen, waiting] = [new Set(), [node]];
  let count = 0;
  for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
    const { class_type, inputs } = prompt[id] ?? { class_type: "?", inputs: {} };
    if (seen.has(id) || class_type === PLAIN) continue;
    seen.add(id);
    if (isOurType(class_type)) count += 1;
    for (const [name, value] of Object.entries(inputs)) {
      if (isLink(value) && !PICTURES.test(name)) waiting.push(value[0]);
    }
  }
  return count;
}

/**
 * @param {unknown} value
 * @returns {value is [string, number]}
 */
export function isLink(value) {
  return Array.isArray(value) && value.length === 2 && typeof value[0] === "string" && typeof value[1] === "number";
}

/**
 * @param {string} text
 * @returns {string} 53 bits (cyrb53, public domain)
 */
function digest(text) {
  let [a, b] = [0xdeadbeef, 0x41c6ce57];
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    a = Math.imul(a ^ code, 2654435761);
    b = Math.imul(b ^ code, 1597334677);
  }
  a = Math.imul(a ^ (a >>> 16), 2246822507) ^ Math.imul(b ^ (b >>> 13), 3266489909);
  b = Math.imul(b ^ (b >>> 16), 2246822507) ^ Math.imul(a ^ (a >>> 13), 3266489909);
  return (4294967296 * (2097151 & b) + (a >>> 0)).toString(36);
}

export class SpeedHistory {
  /** @type {Kept<number[]>} */
  #kept = new Kept("Paceline.Speeds", 200);
  /** @type {Map<string, Promise<void>>} */
  #runs = new Map();

  /**
   * @param {string} key
   * @returns {Promise<number[]>} seconds of a step in each half of the last runs
   */
  async times(key) {
    return (await this.#kept.load())[key] ?? [];
  }

  /**
   * @param {string} key
   * @param {string} run each is kept once
   * @param {number[]} seconds of a step, in each half of the run: together they tell how much a step's time varies
   * @returns {Promise<void>} when it is kept, for all who ask
   */
  keep(key, run, seconds) {
    const kept = this.#runs.get(run) ?? this.#kept.store(key, (before = []) => [...before, ...seconds].slice(-MOST_TIMES));
    this.#runs.set(run, kept);
    return kept;
  }
}
