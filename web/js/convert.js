// "Convert to Paceline" in the context menu of nodes of ComfyUI and of other packs that do what one of ours does. The
// server knows which they are, and what ours is set to in their place.

import { app, tell } from "./comfy.js";
import { asOneStep, isOpen } from "./graph.js";
import { makeNode } from "./insert.js";
import { ask } from "./server.js";
import { connectSource, inputOf, receiversOf, sourceOf } from "./wires.js";
import { words } from "./words.js";

/** @typedef {import("./payloads").Conversion} Conversion */
/** @typedef {Record<string, unknown>} Values widget values by name */

/** Served by server/routes.py. */
const ROUTE = "/paceline/conversions";

/** @type {Record<string, Conversion>} by the old node's type */
let known = {};

/** Ask which nodes can be converted, once. */
export async function loadConversions() {
  known = await ask(ROUTE).catch(() => ({})); // the menu then offers none
}

/**
 * @param {LGraphNode} node
 * @returns {MenuItems}
 */
export function convertMenuItems(node) {
  const type = String(node.type);
  if (!(type in known)) return [];
  /** @returns {Promise<void>} */
  const callback = async () => {
    try {
      const inputs = /** @type {Values} */ (await ask(ROUTE, { node: type, inputs: valuesOf(node) }));
      const made = isOpen(node) && convert(node, inputs); // another workflow can be open by now
      if (made) app.canvas.selectItems?.([made]);
    } catch (error) {
      tell("error", String(/** @type {Error} */ (error).message));
    }
  };
  return [{ content: words("convert"), callback: /** @type {() => void} */ (callback) }];
}

/**
 * @param {LGraphNode} node that can be converted
 * @returns {Values} of its widgets, also where its pack is not installed: it then has only a list of saved values
 */
export function valuesOf(node) {
  const names = known[String(node.type)]?.widgets ?? [];
  const widgets = (node.widgets ?? []).filter((widget) => names.includes(widget.name));
  if (widgets.length) return Object.fromEntries(widgets.map((widget) => [widget.name, widget.value]));
  const saved = /** @type {{last_serialization?: {widgets_values?: unknown}}} */ (/** @type {unknown} */ (node))
    .last_serialization?.widgets_values;
  if (!Array.isArray(saved)) return /** @type {Values} */ (saved ?? {});
  return Object.fromEntries(names.slice(0, saved.length).map((name, index) => [name, saved[index]]));
}

/**
 * Put our node in the place of another: same wires, same place. One step back with undo.
 * @param {LGraphNode} node
 * @param {Values} values for our widgets
 * @returns {LGraphNode | null} ours; null where this version of the pack has no such node
 */
export function convert(node, values) {
  const conversion = known[String(node.type)];
  const { graph } = node;
  const made = conversion && makeNode({ node: conversion.to, inputs: values });
  if (!graph || !made) return null;
  asOneStep(() => {
    graph.add(made);
    made.pos = [node.pos[0], node.pos[1]];
    made.mode = node.mode;
    const source = sourceOf(node, conversion.input);
    if (source) connectSource(source, { node: made, input: inputOf(made, conversion.our_input) });
    for (const receiver of receiversOf(node, 0)) connectSource({ graph, origin: made.id, slot: 0 }, receiver);
    graph.remove(node);
  });
  return made;
}
