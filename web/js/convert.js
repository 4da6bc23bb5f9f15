// "Convert to Paceline" in the context menu of nodes of ComfyUI and of other packs that do what one of ours does.

import { app, createNode } from "./comfy.js";
import { words } from "./words.js";

/** @typedef {import("./graph.js").LGraphNode} LGraphNode */
/** @typedef {Record<string, any>} Values widget values by name */

/**
 * @typedef {object} Conversion
 * @property {string} to our node
 * @property {string} input what the node changes, by its name at the old node
 * @property {string} ourInput the same at ours; it is also our first output
 * @property {string[]} widgets of the old node, in the order of its saved values
 * @property {(old: Values) => Values} values for our widgets
 */

/**
 * @param {Values} old
 * @returns {Values} what torch.compile nodes have in common
 */
function compileValues({ backend, mode, fullgraph, dynamic }) {
  // Our "backend" is what generates code. The backend "cudagraphs" of others generates none; the mode that records
  // CUDA graphs is nearest to it.
  const recorded = backend === "cudagraphs" ? "reduce-overhead" : undefined;
  return defined({
    mode: recorded ?? mode,
    fullgraph,
    dynamic: dynamic === undefined || dynamic === "auto" ? undefined : String(dynamic).toLowerCase(),
  });
}

/**
 * @param {Values} values
 * @returns {Values} without those that are undefined: our node keeps its default there
 */
function defined(values) {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
}

const MODEL = { input: "model", ourInput: "model" };
const VAE = { input: "vae", ourInput: "vae" };

/** @type {Record<string, Conversion>} by the old node's type */
export const CONVERSIONS = {
  // ComfyUI
  TomePatchModel: {
    ...MODEL,
    to: "PacelineApplyToMe",
    widgets: ["ratio"],
    values: ({ ratio }) => defined({ preset: "custom", method: "merge", ratio }),
  },
  TorchCompileModel: { ...MODEL, to: "PacelineCompileUNet", widgets: ["backend"], values: compileValues },
  // ethansmith2000/comfy-todo
  ToDoPatchModel: {
    ...MODEL,
    to: "PacelineApplyToMe",
    widgets: ["downsample_factor_depth_1", "downsample_factor_depth_2"],
    values: ({ downsample_factor_depth_1: first = 2, downsample_factor_depth_2: second = 1 }) => ({
      preset: "custom",
      method: "kv_downsample",
      ratio: 1 - 1 / Math.max(first, 1) ** 2,
      max_downsample: second > 1 ? "2" : "1",
    }),
  },
  // cubiq/ComfyUI_essentials
  "ModelCompile+": {
    ...MODEL,
    to: "PacelineCompileUNet",
    widgets: ["fullgraph", "dynamic", "mode"],
    values: compileValues,
  },
  // kijai/ComfyUI-KJNodes
  TorchCompileModelAdvanced: {
    ...MODEL,
    to: "PacelineCompileUNet",
    widgets: ["backend", "fullgraph", "mode", "dynamic"],
    values: compileValues,
  },
  TorchCompileVAE: {
    ...VAE,
    to: "PacelineCompileVAE",
    widgets: ["backend", "fullgraph", "mode", "compile_encoder", "compile_decoder"],
    values: (old) =>
      defined({ ...compileValues(old), compile_encoder: old.compile_encoder, compile_decoder: old.compile_decoder }),
  },
  TorchCompileControlNet: {
    input: "controlnet",
    ourInput: "control_net",
    to: "PacelineCompileControlNet",
    widgets: ["backend", "fullgraph", "mode"],
    values: compileValues,
  },
  PathchSageAttentionKJ: {
    ...MODEL,
    to: "PacelineSetAttentionProcessor",
    widgets: ["sage_attention"],
    values: ({ sage_attention }) => ({ backend: sage_attention === "disabled" ? "auto" : "sage" }),
  },
};

/**
 * @param {LGraphNode} node
 * @returns {import("@comfyorg/comfyui-frontend-types").ComfyExtension["getNodeMenuItems"] extends
 *   ((node: any) => infer Items) | undefined ? Items : never}
 */
export function convertMenuItems(node) {
  const conversion = CONVERSIONS[String(node.type)];
  return conversion ? [{ content: words("convert"), callback: () => void convert(node, conversion) }] : [];
}

/**
 * @param {LGraphNode} node
 * @param {string[]} names of its widgets, for a node whose pack is not installed: it has only a list of saved values
 * @returns {Values}
 */
function oldValues(node, names) {
  const widgets = (node.widgets ?? []).filter((widget) => names.includes(widget.name));
  if (widgets.length) return Object.fromEntries(widgets.map((widget) => [widget.name, widget.value]));
  const saved = /** @type {{last_serialization?: {widgets_values?: unknown}}} */ (/** @type {unknown} */ (node))
    .last_serialization?.widgets_values;
  if (!Array.isArray(saved)) return /** @type {Values} */ (saved ?? {});
  return Object.fromEntries(names.slice(0, saved.length).map((name, index) => [name, saved[index]]));
}

/**
 * Put our node in the place of another: same wires, same place, same title colour. One step back with undo.
 * @param {LGraphNode} node
 * @param {Conversion} conversion
 * @returns {LGraphNode | null} ours; null where this version of the pack has no such node
 */
export function convert(node, conversion) {
  const { graph } = node;
  const made = createNode(conversion.to);
  if (!graph || !made) return null;
  graph.beforeChange();
  graph.add(made);
  made.pos = [node.pos[0], node.pos[1]];
  made.mode = node.mode;
  const values = conversion.values(oldValues(node, conversion.widgets));
  for (const widget of made.widgets ?? []) {
    const choices = widget.options?.values;
    const value = values[widget.name];
    if (value === undefined || (Array.isArray(choices) && !choices.includes(value))) continue;
    widget.value = value;
  }
  const link = node.getInputLink(node.inputs.findIndex((slot) => slot.name === conversion.input));
  const source = link && graph.getNodeById(link.origin_id);
  const target = made.inputs.findIndex((slot) => slot.name === conversion.ourInput);
  if (link && source) source.connect(link.origin_slot, made, target);
  for (const id of [...(node.outputs[0]?.links ?? [])]) {
    const leaving = graph.links.get(id);
    const receiver = leaving && graph.getNodeById(leaving.target_id);
    if (leaving && receiver) made.connect(0, receiver, leaving.target_slot);
  }
  graph.remove(node);
  graph.afterChange();
  app.canvas.selectItems([made]);
  return made;
}
