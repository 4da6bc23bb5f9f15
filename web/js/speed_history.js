// How fast this machine sampled the same thing without our nodes before. Kept by the server, with the user's settings:
// asking for a file of the user's that is not there yet would put an error on the console.

import { api } from "./comfy.js";
import { isOurType } from "./graph.js";
import { ask } from "./server.js";

const SETTING = /** @type {any} */ ("Paceline.Speeds"); // the frontend's types list the frontend's settings only
const MOST_TIMES = 10;
const MOST_JOBS = 200;

/** What does not change how long a step takes. */
const FREE = /seed|^text|prompt|^steps$|filename|control_after|start_at|end_at|denoise|noise/;

/** Inputs that a step's time does not depend on: what was drawn before, and how pictures are encoded. */
const PICTURES = /^(latent|samples|image|pixels|mask|vae)/;

/** What gives back the model without any of our nodes. */
const PLAIN = "PacelineRemoveOptimizations";

/** @typedef {{key: string, techniques: number}} Job what is sampled, and how many of our nodes its steps run through */
/** @typedef {import("./prompt.js").Prompt} Prompt */

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
 * @returns {Job}
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
    if (!seen.has(place)) {
      seen.set(place, null); // a workflow that goes in a circle has no end
      seen.set(place, shapeOf(id, output));
    }
    return seen.get(place) ?? null;
  };
  /**
   * @param {string} id
   * @param {number} output
   * @returns {string | null}
   */
  const shapeOf = (id, output) => {
    const { class_type, inputs } = prompt[id] ?? { class_type: "?", inputs: {} };
    if (isOurType(class_type)) {
      const through = Object.values(inputs).filter(isLink)[0];
      return through ? shape(through[0], through[1]) : null;
    }
    const names = Object.keys(inputs).sort().filter((name) => isLink(inputs[name]) || !FREE.test(name));
    const values = names.map((name) => {
      const value = inputs[name];
      return [name, isLink(value) ? shape(value[0], value[1]) : value];
    });
    return digest(JSON.stringify([class_type, output, ...values]));
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
  /** @type {Promise<Record<string, number[]>> | null} */
  #known = null;
  #kept = new Set();

  /**
   * @param {string} key
   * @returns {Promise<number | null>} median seconds of a step; null before the first run
   */
  async of(key) {
    const times = [...(await this.times(key))].sort((a, b) => a - b);
    return times[Math.floor(times.length / 2)] ?? null;
  }

  /**
   * @param {string} key
   * @returns {Promise<number[]>} seconds of a step in each half of the last runs
   */
  async times(key) {
    return (await this.#load())[key] ?? [];
  }

  /**
   * @param {string} key
   * @param {string} run each is kept once
   * @param {number[]} seconds of a step, in each half of the run: together they tell how much a step's time varies
   */
  async keep(key, run, seconds) {
    if (this.#kept.has(run)) return;
    this.#kept.add(run);
    const known = await this.#load();
    const times = [...(known[key] ?? []), ...seconds].slice(-MOST_TIMES);
    delete known[key]; // the newest stand at the end
    known[key] = times;
    for (const old of Object.keys(known).slice(0, -MOST_JOBS)) delete known[old];
    await api.storeSetting(SETTING, /** @type {any} */ (known));
  }

  #load() {
    this.#known ??= api.getSetting(SETTING).then(
      (found) => /** @type {any} */ (found) ?? {},
      () => ({}),
    );
    return this.#known;
  }
}
