// The setting that shows how large the cache of compiled code is, and clears it.

import { attempt, tell } from "./comfy.js";
import { createBox, createButton, createElement } from "./elements.js";
import { number } from "../badges/headlines.js";
import { ask } from "./server.js";
import { words } from "./language.js";

/** Served by service/routes.py. */
const ROUTE = "/paceline/cache";

/** @returns {HTMLElement} the setting's control */
export function renderCache() {
  const size = createElement("output", { ariaLive: "polite", textContent: "…" });
  const folder = createElement("code");
  const remove = async () => {
    show(await ask(ROUTE, undefined, "DELETE"));
    tell("success", words("cacheCleared"));
  };
  const clear = createButton(words("cacheClear"), () => void attempt(remove));
  clear.disabled = true;

  /** @param {CodeCache} cache */
  function show({ bytes, path }) {
    size.textContent = bytes > 0 ? `${number(bytes / 1e6, ".1f")} MB` : words("cacheEmpty");
    folder.textContent = path;
    clear.disabled = bytes <= 0;
  }

  ask(ROUTE).then(show, () => {
    size.textContent = words("cacheUnknown");
  });
  return createBox("paceline-cache", size, clear, folder);
}
