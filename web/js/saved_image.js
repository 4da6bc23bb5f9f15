// Where a picture is that ComfyUI has written.

import { api } from "./comfy.js";

/**
 * @param {import("./payloads").SavedImage} image
 * @returns {string} its address
 */
export function address(image) {
  return api.apiURL(`/view?${new URLSearchParams({ ...image })}`);
}
