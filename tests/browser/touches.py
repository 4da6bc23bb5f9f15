"""Every place where our page touches ComfyUI's frontend beyond the hooks of an extension, and what is without it.

``tests/browser/test_touches.py`` holds each line against the frontend that the tests run with, and this list against
``web/``: after an update of the frontend a sentence names what is gone.
"""

from __future__ import annotations

from typing import NamedTuple

SEEN = "1.47.12 and 1.58.1"
"""The frontends in which all of it was seen."""


class Touch(NamedTuple):
    """One thing of the frontend."""

    name: str
    """As it stands in ``web/``."""
    without: str
    """What a user sees where it is missing."""
    there: str = ""
    """JavaScript that is true where it is there; the name itself, or a colour that is set, if empty."""


PAGE = (
    Touch("app.registerExtension", "nothing of ours but the nodes"),
    Touch("app.extensionManager.setting.get", "nothing of ours but the nodes"),
    Touch("app.extensionManager.command.execute", "the tab Speed does not open Make this workflow faster"),
    Touch("app.extensionManager.workflow", "runs in the tab Speed have no names"),
    Touch("app.extensionManager.toast.add", "errors of ours are on the console only"),
    Touch("app.ui.settings.addEventListener", "another language of the page is ours after a reload only"),
    Touch("app.graphToPrompt", "Make this workflow faster does not open"),
    Touch("app.refreshComboInNodes", "a preset of a sweep is offered after a reload only"),
    Touch("api.addEventListener", "badges say nothing of a run"),
    Touch("api.apiURL", "comparisons have no pictures"),
    Touch("api.fetchApi", "nothing of ours but the nodes"),
    Touch("api.clientId", "Make this workflow faster does not end"),
)

GRAPH = (
    Touch("app.rootGraph", "badges say nothing", "app.rootGraph.nodes && app.rootGraph.links && app.rootGraph.id"),
    Touch("app.rootGraph.serialize", "badges do not say that settings have changed since the run"),
    Touch(".getNodeById", "badges say nothing", "app.rootGraph.getNodeById(node.id) === node"),
    Touch(".beforeChange", "an insertion is undone in several steps", "app.rootGraph.beforeChange"),
    Touch(".afterChange", "an insertion is undone in several steps", "app.rootGraph.afterChange"),
    Touch(".getInputLink", "Make this workflow faster finds no wires", "node.getInputLink"),
    Touch(".subgraph", "nodes in subgraphs have no badges", "app.rootGraph.subgraphs"),
    Touch(".comfyClass", "advanced inputs are not folded", "node.constructor.comfyClass === node.type"),
    Touch("LiteGraph.createNode", "nothing can be inserted"),
    Touch("NODE_TEXT_SIZE", "long titles are cut on the canvas", "LiteGraph.NODE_TEXT_SIZE > 0"),
    Touch("NODE_FONT", "long titles are cut on the canvas", "typeof LiteGraph.NODE_FONT === 'string'"),
)

CANVAS = (
    Touch("app.canvas.selectItems", "what was inserted is not selected"),
    Touch("app.canvas.setDirty", "the canvas is drawn anew at the next movement of the pointer"),
    Touch("app.canvas.ctx", "long titles are cut on the canvas"),
    Touch("canvas.ds", "no badges on a canvas that is zoomed out", "app.canvas.ds.scale > 0"),
    Touch("canvas.ds.visible_area", "the view stays where it is", "app.canvas.ds.visible_area.length === 4"),
    Touch("canvas.animateToBounds", "the view stays where it is", "app.canvas.animateToBounds"),
    Touch("canvas.graph", "no badges on a canvas that is zoomed out", "app.canvas.graph.nodes"),
    Touch("canvas.onDrawForeground", "no badges on a canvas that is zoomed out", "app.canvas.onDrawForeground"),
    Touch("app.canvas.processMouseWheel", "the wheel does not zoom over a badge on the canvas"),
    Touch("app.canvas.processMouseDown", "the middle button does not pan over a badge on the canvas"),
    Touch("app.canvas.processMouseMove", "the middle button does not pan over a badge on the canvas"),
    Touch("app.canvas.processMouseUp", "the middle button does not pan over a badge on the canvas"),
    Touch("app.canvas.processContextMenu", "a badge on the canvas has no menu"),
)

NODES = (
    Touch("addDOMWidget", "no badges and comparisons in nodes; the report has what they say", "node.addDOMWidget"),
    Touch(".dom-widget", "the wheel does not zoom over a badge on the canvas", "element.closest('.dom-widget')"),
    Touch("onDrawBackground", "a comparison's pictures stand below it once more", "plain.onDrawBackground"),
    Touch("getLayoutWidgets", "advanced inputs are not folded on the canvas", "plain.getLayoutWidgets"),
    Touch("isWidgetVisible", "advanced inputs are not folded on the canvas", "plain.isWidgetVisible"),
    Touch("expandToFitContent", "advanced inputs are not folded on the canvas", "plain.expandToFitContent"),
    Touch("showAdvanced", "advanced inputs are not folded on the canvas", "folds(node)"),
    Touch("computeSize", "no badges and comparisons in nodes", "node.computeSize"),
)

COLOURS = (
    Touch("--component-node-widget-background", "badges in Nodes 2.0 have the colour of inputs on the canvas"),
    Touch("--comfy-input-bg", "dark grey badges with light text"),
    Touch("--comfy-menu-bg", "dark grey dialogs with light text"),
    Touch("--input-text", "light text, in browsers that cannot derive it from the ground"),
    Touch("--border-color", "grey borders, in browsers that cannot derive them from the ground"),
)

IN_NODES_2 = (Touch("[data-node-id]", "a badge has the menu of the canvas", "element.closest('[data-node-id]')"),)
"""Looked for in the other renderer."""

TOUCHES = (*PAGE, *GRAPH, *CANVAS, *NODES, *COLOURS, *IN_NODES_2)
