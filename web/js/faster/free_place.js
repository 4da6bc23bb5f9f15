// Room for new nodes, where they lie on nothing.

import { app } from "../frontend/comfy.js";

const GAP = 40;
const TITLE = 30;
/** A badge and what the Vue renderer adds need room below. */
const BELOW = 60;
const STEP = 40;

/**
 * Lay nodes in a row where nothing else is: at a point, or as little above or below it as can be.
 * @param {LGraph} graph which has the nodes already
 * @param {LGraphNode[]} nodes
 * @param {[number, number]} near where the upper right corner should be
 */
export function layInRow(graph, nodes, [right, top]) {
  if (!nodes.length) return;
  const width = nodes.reduce((sum, node) => sum + node.size[0] + GAP, -GAP);
  const height = Math.max(...nodes.map((node) => node.size[1])) + BELOW;
  const others = graph.nodes.filter((node) => !nodes.includes(node)).map(({ pos, size }) => [...pos, ...size]);
  /** @type {(x: number, y: number) => boolean} */
  const isFree = (x, y) =>
    others.every(
      ([left, upper, w, h]) =>
        x >= left + w + GAP || left >= x + width + GAP || y - TITLE >= upper + h + GAP || upper - TITLE >= y + height,
    );
  let [x, y] = [right - width, top];
  for (let away = 0; away < 1000 && !isFree(x, y); away++) {
    const side = away % 2 ? 1 : -1; // above, then below
    y = top + side * STEP * (1 + Math.floor(away / 2));
  }
  for (const node of nodes) {
    node.pos = [x, y];
    x += node.size[0] + GAP;
  }
}

/**
 * Move the view where it does not show all of some nodes; change the zoom only where they have no room in it.
 * @param {LGraphNode[]} nodes those of other graphs than the open one are left out
 */
export function bringIntoView(nodes) {
  const { canvas } = app;
  const boxes = nodes.filter(({ graph }) => graph === canvas.graph).map(({ pos, size }) => [...pos, pos[0] + size[0], pos[1] + size[1]]);
  if (!boxes.length) return;
  const [left, upper] = [0, 1].map((axis) => Math.min(...boxes.map((box) => box[axis])) - TITLE);
  const [right, lower] = [2, 3].map((axis) => Math.max(...boxes.map((box) => box[axis])) + TITLE);
  const [x, y, width, height] = canvas.ds.visible_area ?? [];
  if (left >= x && upper >= y && right <= x + width && lower <= y + height) return;
  const fits = right - left <= width && lower - upper <= height;
  canvas.animateToBounds?.([left, upper, right - left, lower - upper], fits ? { zoom: 0 } : {});
}
