// What a run leaves behind for a node to show in itself: a comparison, a report.

import { comparisonParts } from "./comparisons.js";
import { profileParts } from "./profiles.js";
import { reportParts } from "./report_text.js";
import { comfyClassOf, executionIdOf, openWorkflow } from "./graph.js";
import { Shown } from "./shown.js";
import { sweepParts } from "./sweeps.js";

/** @typedef {import("./graph.js").LGraphNode} LGraphNode */
/** @typedef {import("./store.js").ActivityStore} ActivityStore */

const MIN_WIDTH = 420;

/** Nodes whose output pictures are in what they show. */
const OWN_PICTURES = ["PacelineCompareModels", "PacelineBenchmarkSweep"];

/**
 * @param {LGraphNode} node
 * @returns {boolean}
 */
export function showsOwnPictures(node) {
  return OWN_PICTURES.includes(comfyClassOf(node) ?? "");
}

/** @template Value */
class Result {
  element = document.createElement("div");
  /** @type {Value | undefined} */
  #result;

  /**
   * @param {string} className of the element
   * @param {(result: Value, node: LGraphNode) => HTMLElement[]} parts what is shown
   */
  constructor(className, parts) {
    this.element.className = className;
    this.parts = parts;
  }

  /**
   * @param {Value} result
   * @param {LGraphNode} node
   */
  show(result, node) {
    if (this.#result === result) return; // a slider stays where the user has put it
    this.#result = result;
    this.element.replaceChildren(...this.parts(result, node));
  }

  /** Show the same again, in another language. */
  renew() {
    this.#result = undefined;
  }

  /** @param {LGraphNode} node */
  added(node) {
    const [width, height] = node.computeSize();
    node.setSize([Math.max(node.size[0], width, MIN_WIDTH), Math.max(node.size[1], height)]);
  }
}

/**
 * @template Value
 * @param {ActivityStore} store
 * @param {string} name of the widget and the class
 * @param {number} minHeight in pixels
 * @param {(entry: import("./store.js").Entry) => Value | undefined} pick
 * @param {(result: Value, node: LGraphNode) => HTMLElement[]} parts what is shown
 * @returns {Shown<Value>}
 */
function createResults(store, name, minHeight, pick, parts) {
  return new Shown(store, {
    widget: `$$${name}`,
    size: { margin: 8, getMinHeight: () => minHeight },
    pick,
    create: () => new Result(name, parts),
  });
}

/** @param {ActivityStore} store */
export function createComparisons(store) {
  return createResults(store, "paceline-comparison", 450, (entry) => entry.comparison, comparisonParts);
}

/** @param {ActivityStore} store */
export function createReports(store) {
  return createResults(store, "paceline-report", 90, (entry) => entry.report, reportParts);
}

/** @param {ActivityStore} store */
export function createSweeps(store) {
  return createResults(store, "paceline-sweep", 400, (entry) => entry.sweep, sweepParts);
}

/** @param {ActivityStore} store */
export function createProfiles(store) {
  return createResults(store, "paceline-profile", 260, (entry) => entry.profile, profileParts);
}

/**
 * @param {LGraphNode} node
 * @param {ActivityStore} store
 * @returns {import("./payloads").Sweep | undefined} what it has measured last
 */
export function sweepOf(node, store) {
  const id = executionIdOf(node);
  return store.entries(openWorkflow()).find((entry) => entry.node === id)?.sweep;
}
