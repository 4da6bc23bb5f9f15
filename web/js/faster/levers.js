// What a workflow has of its own that makes it faster: named as the person sees it, and switched on to look.

import { app } from "../frontend/comfy.js";
import { createBox, createButton, createElement } from "../frontend/elements.js";
import { asOneStep, nodeAt, nodesWithIds } from "../frontend/graph.js";
import { number, said } from "../badges/headlines.js";
import { address } from "../frontend/server.js";
import { inputOf, sourceOf } from "./wires.js";
import { words } from "../frontend/language.js";

/** @typedef {NonNullable<LGraphNode["widgets"]>[number]} Widget */
/** @typedef {{picture: SavedImage | undefined, seconds: number | undefined}} Drawn */

/**
 * @param {string} id execution id of a node
 * @param {string} input
 * @returns {Widget | undefined} the widget that a person sets it by: of the outermost subgraph that has it, else its own
 */
function widgetOf(id, input) {
  const node = nodeAt(id);
  if (!node) return undefined;
  const source = inputOf(node, input) < 0 ? null : sourceOf(node, input);
  const outer = id.slice(0, Math.max(0, id.lastIndexOf(":")));
  if (source && outer && !source.graph.getNodeById(source.origin)) {
    const given = /** @type {{inputs?: {name: string}[]}} */ (/** @type {unknown} */ (source.graph)).inputs?.[source.slot];
    return given && widgetOf(outer, given.name);
  }
  return node.widgets?.find(({ name }) => name === input);
}

/** @returns {Record<string, string>} what widgets of subgraphs are called, by `node.input` of the inputs that they set */
export function outerNames() {
  /** @type {Record<string, string>} */
  const names = {};
  for (const { id, node } of nodesWithIds().filter((one) => one.id.includes(":"))) {
    for (const { name } of node.inputs ?? []) {
      const seen = widgetOf(id, name);
      if (seen && !(node.widgets ?? []).includes(/** @type {any} */ (seen))) names[`${id}.${name}`] = seen.label || seen.name;
    }
  }
  return names;
}

/** The mode of a node that runs. */
const ALWAYS = 0;

/** @param {Lever["sets"][number]} set an input of a node, or with none whether the node runs */
function placeOf({ node: id, input }) {
  const [widget, node] = input ? [widgetOf(id, input)] : [undefined, nodeAt(id)];
  const set = (/** @type {any} */ value) => {
    if (node) node.mode = value;
    if (widget) widget.value = value;
    widget?.callback?.(value);
  };
  return widget || node ? { before: /** @type {unknown} */ (widget ? widget.value : node?.mode), set } : undefined;
}

/**
 * @param {Lever[]} levers
 * @param {(turn: () => void, back: () => void) => void} look switches it on, draws once and shows both
 * @returns {HTMLElement[]}
 */
export function createLevers(levers, look) {
  return levers.map((lever) => {
    const places = lever.sets.map(placeOf);
    const text = createElement("span", {}, said(lever.said));
    if (!places.length || places.includes(undefined)) return createBox("paceline-lever", text);
    const set = (/** @type {unknown[]} */ values) => {
      asOneStep(() => places.forEach((place, at) => place?.set(values[at])));
      app.canvas.setDirty(true, true);
    };
    const before = places.map((place) => place?.before);
    const after = lever.sets.map(({ input, value }) => (input ? value : ALWAYS));
    const turn = createButton(words("leverLook"), () => look(() => set(after), () => set(before)));
    return createBox("paceline-lever", text, turn);
  });
}

/** @returns {SavedImage | undefined} the last picture that the page has of the open workflow */
export function lastPicture() {
  const outputs = /** @type {Record<string, {images?: SavedImage[]}>} */ (/** @type {any} */ (app).nodeOutputs ?? {});
  return Object.values(outputs).flatMap(({ images }) => images ?? []).at(-1);
}

/** Share of a run that may be new in it, where it is compared with the run before. */
const NEW = 0.1;

/**
 * Compare two runs by what ran in the second: ComfyUI keeps the results of nodes that nothing has changed for. Files are
 * read once, so that does not count.
 * @param {TimedRun | undefined} before
 * @param {TimedRun | undefined} after
 * @returns {number[]} seconds of each; none where much of the second did not run in the first
 */
export function secondsOfBoth(before, after) {
  const [first, second] = [before, after].map((run) => run?.parts.filter(({ kind }) => kind !== "loading") ?? []);
  const secondsIn = (/** @type {Part[]} */ parts, /** @type {Part[]} */ others) => {
    const nodes = new Set(others.map(({ node }) => node));
    return parts.filter(({ node }) => nodes.has(node)).reduce((sum, { start, end }) => sum + end - start, 0);
  };
  const all = secondsIn(second, second);
  return all && secondsIn(second, first) >= (1 - NEW) * all ? [secondsIn(first, second), all] : [];
}

/**
 * @param {Drawn} before
 * @param {Drawn} after
 * @returns {HTMLElement} both pictures, each with its seconds
 */
export function createPair(before, after) {
  const side = (/** @type {string} */ title, /** @type {Drawn} */ { picture, seconds }) => {
    const label = seconds === undefined ? title : `${title}: ${words("leverSeconds").replace("%s", number(seconds, ".3g"))}`;
    const image = picture ? [createElement("img", { src: address(picture), alt: title })] : [];
    return createElement("figure", {}, ...image, createElement("figcaption", {}, label));
  };
  return createBox("paceline-pair", side(words("leverBefore"), before), side(words("leverAfter"), after));
}
