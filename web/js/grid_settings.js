// What a sweep can try: the nodes of this pack that change a model or a VAE, and their inputs.

import { isOurType } from "./graph.js";

const PREFIX = "Paceline";

/** Nodes that choose among the others, or take them off. */
const NO_STEPS = ["OptimizePreset", "RemoveOptimizations", "OptimizationReport", "SaveInt8Model"];

/** @typedef {[string | string[], {options?: string[], default?: unknown, min?: number, max?: number}?]} Input */
/** @typedef {{name: string, display_name: string, output_node: boolean,
 *   input: Record<string, Record<string, Input> | undefined>}} Definition as the server describes a node */

/** @type {Map<string, Setting>} */
const settings = new Map();
for (const [name, options] of Object.entries({ size: ["512", "768", "1024"], batch: ["1", "2", "4"] })) {
  settings.set(name, { name, title: name, input: "", options, whole: true, low: 0, high: 0 });
}

/** @param {Definition} definition of a node that the server has */
export function rememberSettings({ name, display_name, output_node, input }) {
  const node = name.slice(PREFIX.length);
  const inputs = { ...input.required, ...input.optional };
  const target = Object.values(inputs)[0]?.[0];
  if (!isOurType(name) || output_node || NO_STEPS.includes(node) || (target !== "MODEL" && target !== "VAE")) return;
  const shared = { title: display_name, whole: false, low: 0, high: 0 };
  settings.set(node, { ...shared, name: node, input: "", options: ["on", "off"] });
  for (const [key, [type, more]] of Object.entries(inputs)) {
    const named = { ...shared, name: `${node}.${key}`, input: key };
    const options = Array.isArray(type) ? type : type === "COMBO" ? (more?.options ?? []) : null;
    if (options) settings.set(named.name, { ...named, options: options.map(String) });
    else if (type === "BOOLEAN") settings.set(named.name, { ...named, options: ["true", "false"] });
    else if (type === "INT" || type === "FLOAT") {
      settings.set(named.name, { ...named, options: null, whole: type === "INT", low: more?.min ?? 0, high: more?.max ?? 1 });
    }
  }
}

/** @returns {Setting[]} all that there are */
export function allSettings() {
  return [...settings.values()];
}

/** @param {string} name as it stands in the text: with the node's id or its title */
export function settingOf(name) {
  const [node, input] = name.split(".");
  const same = allSettings().find(({ title }) => title.toLowerCase() === node.toLowerCase());
  const id = (same?.name.split(".")[0] ?? node).replace(new RegExp(`^${PREFIX}`), "");
  return settings.get(input === undefined ? id : `${id}.${input}`);
}
