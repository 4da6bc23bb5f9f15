// The setting that shows how large the cache of compiled code is, and clears it.

import { api, app } from "./comfy.js";
import { createButton } from "./dialog.js";
import { number } from "./said.js";
import { words } from "./words.js";

/** @typedef {import("./payloads").Cache} Cache */

/** Served by nodes/routes.py. */
const ROUTE = "/paceline/cache";

/**
 * @param {number} bytes
 * @returns {string} e.g. "12.3 MB"
 */
function sizeText(bytes) {
  if (bytes <= 0) return words("cacheEmpty");
  const units = ["B", "kB", "MB", "GB"];
  const power = Math.min(Math.floor(Math.log10(bytes) / 3), units.length - 1);
  return `${number(bytes / 1000 ** power, power ? ".1f" : ".0f")} ${units[power]}`;
}

/**
 * @param {string} method
 * @returns {Promise<Cache>}
 */
async function ask(method) {
  const response = await api.fetchApi(ROUTE, { method });
  if (response.ok) return response.json();
  /** @type {Partial<import("./payloads").CacheError>} */
  const { error } = await response.json().catch(() => ({}));
  throw new Error(error ?? `${method} ${ROUTE}: ${response.status}`);
}

/** @returns {HTMLElement} the setting's control */
export function renderCache() {
  const row = document.createElement("div");
  row.className = "paceline-cache";
  const size = document.createElement("output");
  size.ariaLive = "polite";
  const folder = document.createElement("code");
  const clear = createButton(words("cacheClear"), async () => {
    clear.disabled = true;
    try {
      show(await ask("DELETE"));
      app.extensionManager.toast.add({ severity: "success", summary: words("cacheCleared"), life: 3000 });
    } catch (error) {
      app.extensionManager.toast.add({ severity: "error", summary: words("cacheFailed"), detail: String(/** @type {Error} */ (error).message) });
      clear.disabled = false;
    }
  });
  clear.disabled = true;

  /** @param {Cache} cache */
  function show({ bytes, path }) {
    size.textContent = sizeText(bytes);
    folder.textContent = path;
    clear.disabled = bytes <= 0;
  }

  size.textContent = "…";
  ask("GET").then(show, () => {
    size.textContent = words("cacheUnknown");
  });
  row.append(size, clear, folder);
  return row;
}
