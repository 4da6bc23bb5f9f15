"""The list of what we touch of the frontend is whole, and true of the frontend that the tests run with."""

from __future__ import annotations

import re

from browser.page import CANVAS, VUE, Page
from browser.touches import IN_NODES_2, SEEN, TOUCHES, Touch
from comfy_host.paths import ROOT

SOURCES = "".join(
    path.read_text(encoding="utf-8")
    for path in sorted(ROOT.glob("web/**/*"))
    if path.suffix in (".js", ".css") and "docs" not in path.parts
)

NODES = """
const { addElement } = await import(
    new URL("js/frontend/comfy.js", document.querySelector("[href$='results.css']").href));
const node = make("PacelineApplyToMe", 0, 0, {}), element = document.createElement("div");
addElement(node, "$$paceline-touched", element, { margin: 8, getMinHeight: () => 20 });
window.touched = { node, element, plain: make("KSampler", 1200, 0, {}) };
return node.id;
"""

LOOK = """
const { node, element, plain } = touched;
const folds = (node) => {
  const height = () => node.computeSize()[1];
  const folded = height();
  node.showAdvanced = true;
  const open = height();
  node.showAdvanced = false;
  return open > folded;
};
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const { api } = app;
try {
  return Boolean(eval(args[0]));
} catch {
  return false;
}
"""


def expression(touch: Touch) -> str:
    return touch.there or (f"colour('{touch.name}')" if touch.name.startswith("--") else touch.name)


def test_what_we_touch_of_the_frontend_is_there(page: Page):
    gone = []
    for renderer, touches in ((CANVAS, [one for one in TOUCHES if one not in IN_NODES_2]), (VUE, IN_NODES_2)):
        page.use(renderer)
        page.show_node(page.build(NODES), 1.0)
        gone += [touch for touch in touches if not page.script(LOOK, expression(touch))]
    version = page.script("return window.__COMFYUI_FRONTEND_VERSION__ ?? 'unknown'")
    said = [f"Frontend {version} has no {one.name} ({SEEN} have). Without it: {one.without}." for one in gone]
    assert not said, "\n".join(said)


def test_without_it_nodes_are_plain_and_whole(page: Page):
    """In a frontend that can neither fold nor show elements, nodes have all of their inputs, and nothing of ours."""
    page.use(CANVAS)
    page.empty()
    shown = page.script(
        """
        const base = document.querySelector("[href$='results.css']").href;
        const { foldAdvanced } = await import(new URL("js/frontend/inputs.js", base));
        const { addElement } = await import(new URL("js/frontend/comfy.js", base));
        const tome = LiteGraph.createNode("PacelineApplyToMe");
        delete tome.getLayoutWidgets;
        tome.isWidgetVisible = undefined;
        foldAdvanced(tome);
        tome.addDOMWidget = undefined;
        const size = { margin: 8, getMinHeight: () => 20 };
        return [!Object.hasOwn(tome, "getLayoutWidgets"), !addElement(tome, "x", document.createElement("div"), size)];
        """
    )
    assert shown == [True, True]


def test_everything_that_is_touched_is_in_the_list():
    code = re.sub(r"//.*|/\*[\s\S]*?\*/", "", SOURCES).replace("?.", ".")
    found = set(re.findall(r"\b(?:app|api)(?:\.\w+)+", code)) - {"app.js", "api.js", "app.canvas"}
    found |= set(re.findall(r"LiteGraph\)?(?:\.\w+)", code.replace("LiteGraph)", "LiteGraph")))
    found |= {name for name in re.findall(r"var\((--[\w-]+)", code) if not name.startswith("--paceline")}
    listed = [touch.name for touch in TOUCHES]
    missing = [name for name in found if not any(name.startswith(entry) or entry in name for entry in listed)]
    assert not missing, "add them to tests/browser/touches.py"


def test_nothing_in_the_list_is_left_over():
    code = SOURCES.replace("?.", ".").replace("(window).", "")
    assert not [touch.name for touch in TOUCHES if touch.name not in code]
