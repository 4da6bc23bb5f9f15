// The only place that knows where ComfyUI's own modules are.

import { api } from "../../../../scripts/api.js";
import { app } from "../../../../scripts/app.js";

export { api, app };

/**
 * Listen to messages of the server: also to ours, which are not among those that the frontend's types list.
 * @template Detail
 * @param {string} type
 * @param {(detail: Detail) => void} handler
 * @param {AddEventListenerOptions} [options]
 */
export function onMessage(type, handler, options) {
  const target = /** @type {EventTarget} */ (api);
  target.addEventListener(type, (event) => handler(/** @type {CustomEvent} */ (event).detail), options);
}

/**
 * Say something in a corner of the page, for a while.
 * @param {"success" | "info" | "warn" | "error"} severity
 * @param {string} summary
 */
export function tell(severity, summary) {
  app.extensionManager.toast.add({ severity, summary, life: 6000 });
}

/**
 * Do what can fail, and say so where it does.
 * @param {() => unknown} action
 */
export async function attempt(action) {
  try {
    await action();
  } catch (error) {
    tell("error", messageOf(error));
  }
}

/** @param {unknown} error that was caught */
export function messageOf(error) {
  return String(/** @type {Error} */ (error).message);
}

/**
 * @param {string} type
 * @returns {LGraphNode | null} a new node that is in no graph yet; null for an unknown type
 */
export function createNode(type) {
  return /** @type {any} */ (window).LiteGraph.createNode(type); // the frontend has no module for it
}

/**
 * Show an element in a node, in both renderers. Neither the workflow file nor the prompt knows of it.
 * @param {LGraphNode} node
 * @param {string} name
 * @param {HTMLElement} element
 * @param {{margin: number, getMinHeight: () => number, getMaxHeight?: () => number}} size
 * @returns {boolean} false where the frontend cannot do it
 */
export function addElement(node, name, element, size) {
  const host = /** @type {any} */ (node); // the frontend's published types leave out what it adds to LiteGraph's nodes
  if (!host.addDOMWidget) return false;
  const widget = host.addDOMWidget(name, name, element, { serialize: false, hideInPanel: true, ...size });
  widget.serialize = false;
  widget.label = "Paceline"; // else menus of the frontend show the name
  if (!forwarding.has(element)) forwardPointer(node, element);
  forwarding.add(element);
  makeRoom(node);
  return true;
}

/**
 * Make a node as large as what it shows. The canvas renderer would leave out the margin below it.
 * @param {LGraphNode} node
 * @param {number} [minWidth]
 */
export function makeRoom(node, minWidth = 0) {
  const [width, height] = node.computeSize();
  node.setSize([Math.max(node.size[0], width, minWidth), Math.max(node.size[1], height)]);
}

/** @type {WeakSet<HTMLElement>} */
const forwarding = new WeakSet();

/**
 * Let zooming, panning and the node's menu work over an element, as over the rest of the node. In the canvas renderer
 * the element lies above the canvas and would keep these events; in the other one only the menu must be told that no
 * input of the node is meant.
 * @param {LGraphNode} node
 * @param {HTMLElement} element
 */
function forwardPointer(node, element) {
  const onCanvas = () => element.closest(".dom-widget") !== null;
  element.addEventListener("wheel", (event) => {
    if (!onCanvas() || (!event.ctrlKey && scrolls(event, element))) return;
    event.preventDefault();
    app.canvas.processMouseWheel(event);
  });
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 1 || !onCanvas()) return;
    event.preventDefault();
    app.canvas.processMouseDown(event);
  });
  element.addEventListener("pointermove", (event) => {
    if (event.buttons & 4 && onCanvas()) app.canvas.processMouseMove(event);
  });
  element.addEventListener("pointerup", (event) => {
    if (event.button === 1 && onCanvas()) app.canvas.processMouseUp(event);
  });
  element.addEventListener("contextmenu", (event) => {
    event.preventDefault();
    event.stopPropagation();
    const { clientX, clientY } = event;
    const target = element.closest("[data-node-id]");
    if (onCanvas() || !target) {
      app.canvas.processContextMenu(node, /** @type {any} */ (event)); // the frontend's type has its own fields too
    } else {
      target.dispatchEvent(new MouseEvent("contextmenu", { bubbles: true, cancelable: true, clientX, clientY, button: 2 }));
    }
  });
}

/**
 * @param {WheelEvent} event
 * @param {HTMLElement} element
 * @returns {boolean} whether a part of the element below the pointer can scroll that way
 */
function scrolls({ target, deltaY }, element) {
  for (let part = /** @type {Element | null} */ (target); part && element.contains(part); part = part.parentElement) {
    const room = part.scrollHeight - part.clientHeight;
    if (room < 1 || !/auto|scroll/.test(getComputedStyle(part).overflowY)) continue;
    if (deltaY < 0 ? part.scrollTop > 0 : part.scrollTop < room - 1) return true;
  }
  return false;
}

/**
 * Keep the frontend from showing a node's output pictures below it: the node shows them itself.
 * @param {LGraphNode} node
 */
export function hidePictures(node) {
  const own = /** @type {{hideOutputImages?: boolean, onDrawBackground?: () => void}} */ (/** @type {unknown} */ (node));
  own.hideOutputImages = true; // Nodes 2.0
  own.onDrawBackground = () => {}; // the canvas renderer adds its preview there
}

/**
 * @param {LGraphNode} node
 * @param {string} name
 */
export function removeElement(node, name) {
  const index = node.widgets?.findIndex((widget) => widget.name === name) ?? -1;
  if (index < 0) return;
  const [widget] = /** @type {any[]} */ (node.widgets).splice(index, 1);
  widget.onRemove?.();
}
