// Saved workflows keep loading when a node gets new inputs, or its inputs change their order.
//
// The frontend saves the values of widgets as a list without names. We save the names beside it, and sort the list by
// them when a workflow is loaded. A workflow that was saved without names is read in today's order: inputs that came
// later stand behind the older ones in every node of this pack.

import { isOurType } from "./graph.js";

/** @typedef {{widgets_values?: unknown[], properties?: Record<string, unknown>}} Saved a node in a workflow file */

const PROPERTY = "paceline_widgets";

/**
 * What a workflow without the value means, where that is not today's default: what the node did before it had the input.
 * @type {Record<string, Record<string, unknown>>}
 */
const BEFORE = { PacelineApplyToMe: { residual: "off" } };

/**
 * @param {LGraphNode} node
 * @returns {NonNullable<LGraphNode["widgets"]>} those whose values are saved
 */
function savedWidgets(node) {
  return (node.widgets ?? []).filter((widget) => widget.serialize !== false);
}

/**
 * Make a class of nodes save the names of its widgets, and use them when it is loaded.
 * @param {{prototype: any}} nodeType
 * @param {string} name its id
 */
export function rememberWidgetNames(nodeType, name) {
  if (!isOurType(name)) return;
  const { configure, onSerialize } = nodeType.prototype;

  /** @param {Saved} saved */
  nodeType.prototype.onSerialize = function (saved) {
    onSerialize?.call(this, saved);
    const names = savedWidgets(this).map((widget) => widget.name);
    if (names.length) saved.properties = { ...saved.properties, [PROPERTY]: names };
  };

  /** @param {Saved} saved */
  nodeType.prototype.configure = function (saved) {
    const values = saved.widgets_values;
    if (!Array.isArray(values)) return configure.call(this, saved);
    const before = Object.entries(BEFORE[name] ?? {});
    const then = saved.properties?.[PROPERTY] ?? (before.length && savedWidgets(this).map((widget) => widget.name));
    if (!Array.isArray(then)) return configure.call(this, saved);
    const known = new Map(/** @type {[string, unknown][]} */ ([...before, ...values.map((value, index) => [then[index], value])]));
    const widgets_values = savedWidgets(this).map(({ name, value }) => (known.has(name) ? known.get(name) : value));
    configure.call(this, { ...saved, widgets_values });
  };
}
