// The open workflow in the form in which ComfyUI runs it.

import { app } from "./comfy.js";

/** @returns {Promise<Prompt>} */
export async function openPrompt() {
  return /** @type {Prompt} */ (/** @type {unknown} */ ((await app.graphToPrompt()).output));
}
