// Imported before each test file: the module hooks, and the few globals of a browser that web/js reads.

import { readFileSync } from "node:fs";
import { register } from "node:module";
import { parseHTML } from "../browser/node_modules/linkedom/esm/index.js";

register("./hooks.mjs", import.meta.url);

const { window, document } = parseHTML("<!doctype html><html><head></head><body></body></html>");
/** What a browser keeps for a page. */
function storage() {
  const kept = new Map();
  return { getItem: (name) => kept.get(name) ?? null, setItem: (name, value) => kept.set(name, value) };
}

Object.assign(globalThis, {
  window,
  document,
  Image: window.Image,
  Option: function (textContent, value) {
    return Object.assign(document.createElement("option"), { textContent, value });
  },
  navigator: {},
  getComputedStyle: () => ({ getPropertyValue: () => "" }),
  MutationObserver: window.MutationObserver,
  ResizeObserver: class {
    observe() {}
    disconnect() {}
  },
  requestAnimationFrame: (draw) => setTimeout(draw),
  sessionStorage: storage(),
  localStorage: storage(),
});
Object.assign(window.HTMLElement.prototype, {
  showModal() {},
  focus() {},
  close() {
    this.dispatchEvent(new window.Event("close"));
  },
});
Object.defineProperty(document, "baseURI", { value: "http://127.0.0.1/" });

// The page has its words before it shows anything.
const { api } = await import("./comfyui.mjs");
const { loadWords } = await import("../../web/js/frontend/language.js");
api.answers["/i18n"] = { en: JSON.parse(readFileSync(new URL("../../locales/en/main.json", import.meta.url))) };
await loadWords();
