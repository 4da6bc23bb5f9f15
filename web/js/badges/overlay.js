// What badges say where the nodes themselves do not show them: when the canvas is zoomed out, and on subgraph nodes for
// all nodes inside. Drawn on the canvas above a node's title, always as large on the screen.

import { signOf } from "./badge.js";
import { badgeText, colourOf, shownActivity, stateText } from "./activity.js";
import { showsBadges } from "./badges.js";
import { app } from "../frontend/comfy.js";
import { inside, isOurType, nodeAt, openWorkflow, ourNodes, prefixOf } from "../frontend/graph.js";

/** Below this zoom the canvas renderer shows no elements inside of nodes; Nodes 2.0 always does. */
const SMALL = 0.6;

const TITLE = 30;
const FONT = 11;
const HEIGHT = 18;

/** From what a user should see first to what is as it should be. */
const ORDER = ["failed", "working", "partly", "cancelled", "stale", "waiting", "inactive", "active"];

/** @typedef {{node: LGraphNode, state: string, text: string, row: number}} Pill what is drawn above a node's title, in which row from 0 */

/**
 * Draw with the canvas, after all nodes.
 * @param {ActivityStore} store
 */
export function drawOverlay(store) {
  const { canvas } = app;
  const before = canvas.onDrawForeground;
  canvas.onDrawForeground = function (context, area) {
    before?.call(this, context, area);
    for (const pill of showsBadges() ? pills(store) : []) draw(context, pill, canvas.ds.scale);
  };
  store.addEventListener("change", () => canvas.setDirty(true, false));
}

/**
 * @param {ActivityStore} store
 * @returns {Pill[]} what is drawn now
 */
function pills(store) {
  const { canvas } = app;
  const { graph } = canvas;
  const prefix = graph ? prefixOf(graph) : undefined;
  if (!graph || prefix === undefined) return [];
  const far = canvas.ds.scale < SMALL && !app.extensionManager.setting.get("Comfy.VueNodes.Enabled");
  const badges = graph.nodes.flatMap((node) => {
    const own = far && isOurType(node.type) ? [prefix + node.id] : [];
    const ids = inside(node) ? ourNodes(inside(node), `${prefix}${node.id}:`).map(({ id }) => id) : own;
    const shown = ids.flatMap((id) => shownActivity(store.entry(openWorkflow(), id), node) ?? []);
    if (!shown.length) return [];
    const state = ORDER.find((name) => shown.some((activity) => activity.state === name)) ?? shown[0].state;
    const text = shown.length === 1 ? badgeText(shown[0]) : counted(shown);
    const colour = shown.every((activity) => colourOf(activity) === "on") ? "on" : state;
    return [{ node, state: colour, text, row: 0 }];
  });
  const ofSamplers = store.entries(openWorkflow()).flatMap(({ node: id, chip }) => {
    if (!chip || !id.startsWith(prefix)) return [];
    const [first, ...rest] = id.slice(prefix.length).split(":");
    const node = nodeAt(prefix + first);
    // Above the badge of a subgraph node, which stands in the row below.
    return node && (rest.length || far) ? [{ node, state: "", text: chip.text, row: Math.min(1, rest.length) }] : [];
  });
  return [...badges, ...ofSamplers];
}

/**
 * @param {Activity[]} activities
 * @returns {string} e.g. "1 not active · 2 active"
 */
function counted(activities) {
  const texts = [...activities].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state)).map(stateText);
  return [...new Set(texts)].map((text) => `${texts.filter((one) => one === text).length} ${text}`).join(" · ");
}

/**
 * @param {CanvasRenderingContext2D} context in the graph's coordinates
 * @param {Pill} pill
 * @param {number} scale
 */
function draw(context, { node, state, text, row }, scale) {
  const style = getComputedStyle(document.documentElement);
  const named = state === "on" ? "text" : ["active", "partly", "working", "failed"].includes(state) ? state : "inactive";
  const height = HEIGHT / scale;
  const padding = 6 / scale;
  context.save();
  context.font = `${FONT / scale}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  const room = Math.max(node.size[0] - 2 * padding, height);
  const label = fitting(context, state ? `${signOf(state)} ${text}` : text, room);
  const width = context.measureText(label).width + 2 * padding;
  const [x, y] = [node.pos[0], node.pos[1] - TITLE - (row + 1) * (height + 4 / scale)];
  context.fillStyle = style.getPropertyValue("--paceline-surface");
  context.beginPath();
  context.roundRect(x, y, width, height, height / 2);
  context.fill();
  context.fillStyle = style.getPropertyValue(`--paceline-${named}`);
  context.fillText(label, x + padding, y + height / 2);
  context.restore();
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} width
 * @returns {string} as much of the text as has room; its sign at least
 */
function fitting(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let length = text.length - 1;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) length--;
  return length > 1 ? `${text.slice(0, length)}…` : text.slice(0, 1);
}
