// Measures how fast a sampler is without our nodes, where too few runs of that are kept.

import { api } from "../frontend/comfy.js";
import { isLink, isOurType, openPrompt, withSources } from "../frontend/graph.js";
import { ask } from "../frontend/server.js";

/** As many are enough for a median; the first one, in which things are built, does not count. */
export const STEPS = 6;

/**
 * Sample a few steps without our nodes. It is kept as every run is.
 * @param {string} sampler execution id
 * @returns {Promise<string>} of the prompt
 */
export async function measureBaseline(sampler) {
  const prompt = plainPrompt(await openPrompt(), sampler);
  const { prompt_id } = await ask("/prompt", { client_id: api.clientId, prompt });
  return prompt_id;
}

/**
 * @param {Prompt} prompt
 * @param {string} sampler
 * @returns {Prompt} the sampler with a few steps and what it needs, without nodes of ours
 */
function plainPrompt(prompt, sampler) {
  /**
   * @param {unknown} value of an input
   * @returns {unknown} the same; a wire from a node of ours comes from what that node was given
   */
  const plain = (value) => {
    if (!isLink(value)) return value;
    const [id, output] = value;
    const node = prompt[id];
    if (!node || !isOurType(node.class_type)) return value;
    const { vae } = node.inputs;
    const given = output === 1 && isLink(vae) ? vae : Object.values(node.inputs).find(isLink);
    return given ? plain(given) : value;
  };
  /** @type {Prompt} */
  const every = {};
  for (const [id, { class_type, inputs }] of Object.entries(prompt)) {
    every[id] = { class_type, inputs: {} };
    for (const [name, value] of Object.entries(inputs)) {
      if (name === "steps" && typeof value === "number") every[id].inputs[name] = Math.min(value, STEPS);
      // What was drawn before would be taken from ComfyUI's cache.
      else if (name.endsWith("seed") && typeof value === "number") every[id].inputs[name] = Date.now();
      else every[id].inputs[name] = plain(value);
    }
  }
  // Something must be shown, or nothing is run.
  const shown = { class_type: "PreviewAny", inputs: { source: [sampler, 0] } };
  return { ...withSources(every, sampler), paceline_baseline: shown };
}
