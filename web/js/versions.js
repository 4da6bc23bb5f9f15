// Saved workflows keep loading when a node gets new inputs, or its inputs change their order.
//
// The frontend saves the values of widgets as a list without names. We save the names beside it, and sort the list by
// them when a workflow is loaded. A workflow that was saved without names is read in today's order: inputs that came
// later stand behind the older ones in every node of this pack.

import { isOurType } from "./graph.js";

/** @typedef {{widgets_values?: unknown[], properties?: Record<string, unknown>}} Saved a node in a workflow file */

const PROPERTY = "paceline_widgets";

/**
 * @param {string[]} now names of the widgets
 * @param {unknown[]} defaults their values in a new node
 * @param {string[]} then names of the widgets when the node was saved
 * @param {unknown[]} saved their values
 * @returns {unknown[]} values in today's order; a widget that there was not has its default
 */
function migrate(now, defaults, then, saved) {
  return now.map((name, index) => {
    const place = then.indexOf(name);
    return place >= 0 && place < saved.length ? saved[place] : defaults[index];
  });
}

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
    const then = saved.properties?.[PROPERTY];
    const widgets = savedWidgets(this);
    const now = widgets.map((widget) => widget.name);
    if (Array.isArray(then) && Array.isArray(saved.widgets_values) && String(then) !== String(now)) {
      const defaults = widgets.map((widget) => widget.value);
      saved = { ...saved, widgets_values: migrate(now, defaults, then, saved.widgets_values) };
    }
    configure.call(this, saved);
  };
}
