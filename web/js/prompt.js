// The open workflow in the form in which ComfyUI runs it.

import { app } from "./comfy.js";
import { valuesOf } from "./convert.js";
import { nodeAt } from "./graph.js";

/** @returns {Promise<Prompt>} with the saved values of nodes whose pack is not installed: the frontend leaves them out */
export async function openPrompt() {
  const prompt = /** @type {Prompt} */ (/** @type {unknown} */ ((await app.graphToPrompt()).output));
  for (const [id, entry] of Object.entries(prompt)) {
    const node = nodeAt(id);
    if (node && !node.widgets?.length) entry.inputs = { ...valuesOf(node), ...entry.inputs };
  }
  return prompt;
}
