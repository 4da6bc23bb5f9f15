// Measures inserted nodes on this machine: each against the workflow without it, with Compare Models.

import { api, app } from "./comfy.js";

/** @typedef {import("./payloads").Comparison} Comparison */
/** @typedef {Record<string, {class_type: string, inputs: Record<string, unknown>}>} Prompt */
/** @typedef {import("./faster.js").Inserted} Inserted */

/**
 * @typedef {object} Scene what is measured
 * @property {Prompt} prompt of the open workflow
 * @property {string} sampler execution id
 * @property {unknown} source where the model comes from
 * @property {Record<string, unknown>} settings for Compare Models
 */

const COMPARE = "paceline_trial";

/** Inputs that a sampler and Compare Models have in common. */
const SHARED = ["positive", "negative", "latent_image", "steps", "cfg", "sampler_name", "scheduler", "denoise", "seed"];

/** What is good enough, for each choice. */
const ALLOWED = {
  lossless: ["identical", "hardly visible"],
  balanced: ["identical", "hardly visible"],
  fast: ["identical", "hardly visible", "visible"],
};

/**
 * @param {Inserted} inserted
 * @returns {Promise<Scene | null>} null if no sampler is connected that Compare Models can stand in for
 */
export async function sceneFor({ wire, nodes }) {
  if (wire.name !== "model" || !nodes.length) return null;
  const prompt = /** @type {Prompt} */ (/** @type {unknown} */ ((await app.graphToPrompt()).output));
  const sampler = wire.receivers.map(({ node }) => wire.prefix + node.id).find((id) => {
    const inputs = prompt[id]?.inputs ?? {};
    return ["positive", "negative", "latent_image", "steps", "cfg", "sampler_name", "scheduler"].every((name) => name in inputs);
  });
  const first = prompt[wire.prefix + nodes[0].id];
  if (!sampler || !first) return null;
  const { inputs } = prompt[sampler];
  const settings = Object.fromEntries(SHARED.flatMap((name) => (name in inputs ? [[name, inputs[name]]] : [])));
  if ("noise_seed" in inputs) settings.seed = inputs.noise_seed;
  const decoder = Object.values(prompt).find((node) => "vae" in node.inputs && String(node.inputs.samples) === `${sampler},0`);
  if (decoder) settings.vae = plainVae(prompt, decoder.inputs.vae);
  return { prompt, sampler, source: first.inputs.model, settings };
}

/**
 * @param {Prompt} prompt
 * @param {unknown} wire
 * @returns {unknown} the wire to the VAE before nodes of ours: what is judged is the model
 */
function plainVae(prompt, wire) {
  const node = Array.isArray(wire) ? prompt[wire[0]] : undefined;
  return node?.class_type.startsWith("Paceline") && "vae" in node.inputs ? plainVae(prompt, node.inputs.vae) : wire;
}

/**
 * @param {Comparison} found
 * @param {string} choice
 * @returns {boolean} whether the picture is as good as was chosen
 */
export function isGoodEnough({ quality }, choice) {
  return ALLOWED[/** @type {keyof typeof ALLOWED} */ (choice)]?.includes(quality) ?? false;
}

/**
 * @param {Comparison} found
 * @param {string} choice
 * @returns {boolean} whether the node is worth keeping: certainly faster, and the picture is as good as was chosen
 */
export function isWorthKeeping(found, choice) {
  return found.found === "faster" && isGoodEnough(found, choice);
}

/**
 * Compare the model behind some of the nodes with the model behind fewer of them.
 * @param {Scene} scene
 * @param {string[]} baseline execution ids of nodes of the chain, in order
 * @param {string[]} optimized the same
 * @param {{runs: number, warmup_runs: number}} times
 * @param {(share: number) => void} progress
 * @returns {Promise<{comparison: Comparison, compiling: number}>} also the seconds that went into compiling
 */
export async function measure(scene, baseline, optimized, times, progress) {
  const prompt = promptOf(scene, baseline, optimized, times);
  const response = await api.fetchApi("/prompt", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ client_id: api.clientId, prompt }),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(refusal(answer) || response.statusText);
  return heard(answer.prompt_id, progress);
}

/**
 * @param {{error?: {message?: string}, node_errors?: Record<string, {errors: {message: string, details: string}[]}>}} answer
 * @returns {string} why ComfyUI does not take a prompt
 */
function refusal({ error, node_errors }) {
  const [first] = Object.values(node_errors ?? {}).flatMap(({ errors }) => errors);
  return first ? `${first.message}: ${first.details}` : (error?.message ?? "");
}

/**
 * @param {Scene} scene
 * @param {string[]} baseline
 * @param {string[]} optimized
 * @param {Record<string, number>} times
 * @returns {Prompt}
 */
function promptOf({ prompt, source, settings }, baseline, optimized, times) {
  /** @type {Prompt} */
  const made = {};
  /**
   * @param {string[]} chain
   * @param {string} side
   */
  const behind = (chain, side) =>
    chain.reduce((model, id) => {
      const copy = `${COMPARE}_${side}_${id}`;
      made[copy] = { ...prompt[id], inputs: { ...prompt[id].inputs, model } };
      return /** @type {unknown} */ ([copy, 0]);
    }, source);
  const inputs = {
    ...settings,
    ...times,
    model_baseline: behind(baseline, "a"),
    model_optimized: behind(optimized, "b"),
    fp32_reference: false,
    filename_prefix: "paceline/trial",
    save_files: false,
    fewer_steps: false,
  };
  made[COMPARE] = { class_type: "PacelineCompareModels", inputs };
  /** @param {Record<string, unknown>} needed inputs whose nodes the prompt must have */
  const add = (needed) => {
    for (const value of Object.values(needed)) {
      const id = Array.isArray(value) ? String(value[0]) : "";
      if (!id || (made[id] && id !== COMPARE && !id.startsWith(COMPARE))) continue;
      if (!made[id] && !prompt[id]) continue;
      made[id] ??= prompt[id];
      add(made[id].inputs);
    }
  };
  add(inputs);
  return made;
}

/**
 * Wait for the end of a comparison.
 * @param {string} promptId
 * @param {(share: number) => void} progress
 * @returns {Promise<{comparison: Comparison, compiling: number}>}
 */
function heard(promptId, progress) {
  return new Promise((resolve, reject) => {
    const stop = new AbortController();
    /** @type {Comparison | undefined} */
    let comparison;
    let compiling = 0;
    /**
     * @param {string} type
     * @param {(detail: any) => void} handler
     */
    const on = (type, handler) => {
      const listener = (/** @type {Event} */ event) => {
        const { detail } = /** @type {CustomEvent} */ (event);
        if (detail?.prompt_id === promptId) handler(detail);
      };
      /** @type {EventTarget} */ (api).addEventListener(type, listener, { signal: stop.signal });
    };
    /** @param {() => void} action */
    const end = (action) => {
      stop.abort();
      action();
    };
    on("progress", ({ value, max }) => progress(max ? value / max : 0));
    on("paceline.compile", ({ seconds }) => (compiling = Math.max(compiling, seconds)));
    on("executed", ({ output }) => (comparison = output?.paceline_comparison?.[0] ?? comparison));
    on("execution_error", ({ exception_message }) => end(() => reject(new Error(exception_message.trim()))));
    on("execution_interrupted", () => end(() => reject(new DOMException("", "AbortError"))));
    on("execution_success", () => end(() => (comparison ? resolve({ comparison, compiling }) : reject(new Error("?")))));
  });
}

/** Stop what is being measured. */
export async function cancelTrial() {
  await api.interrupt(null);
}
