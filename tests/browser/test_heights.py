"""A node of ours is as high as what it shows, in both renderers, with advanced inputs folded and not."""

from __future__ import annotations

from typing import Any

import pytest
from browser.page import CANVAS, TOME, VUE, Page

pytestmark = pytest.mark.usefixtures("quiet_console")


@pytest.mark.usefixtures("ran")
def test_the_canvas_folds_advanced_inputs_and_cuts_no_title(page: Page, tome_workflow: dict[str, Any]):
    """As Nodes 2.0 does by itself. A saved node of which one is not at its default shows all. It has a badge."""
    tome_workflow["nodes"] = [
        node | ({"size": [330, 700]} if node["id"] == TOME else {}) for node in tome_workflow["nodes"]
    ]
    page.load(tome_workflow)  # saved with room for all of them
    page.show_node(TOME, zoom=1.0)
    assert {"Apply ToMe", "Set Attention Processor", "ratio"} <= (drawn := set(page.drawn())) and "sy" not in drawn
    height = "return app.graph.getNodeById(args[0]).size[1]"
    folded = page.script(height, TOME)
    assert folded < 250
    page.script("app.graph.getNodeById(args[0]).toggleAdvanced()", TOME)  # what the entry of the frontend's menu does
    page.load(page.workflow())  # undo and a reload keep them
    page.show_node(TOME, zoom=1.0)
    assert {"ratio", "sx", "sy", "strict"} <= set(page.drawn()) and page.script(height, TOME) > folded
    page.screenshot("advanced_inputs")
    page.script("app.graph.getNodeById(args[0]).toggleAdvanced()", TOME)
    assert "sy" not in page.drawn() and page.script(height, TOME) == folded
    page.script("app.graph.getNodeById(args[0]).widgets.find(({ name }) => name === 'sy').value = 3", TOME)
    page.load(page.workflow())
    page.show_node(TOME, zoom=1.0)
    assert {"sx", "sy"} <= set(page.drawn())
    assert next(node for node in page.workflow()["nodes"] if node["id"] == TOME)["widgets_values"][5] == 3

    report = page.build("return make('PacelineOptimizationReport', 0, 0, {}).id;")
    page.show_node(report, zoom=1.0)
    assert "Optimization Report" in page.drawn()


@pytest.mark.parametrize("kind", ["PacelineApplyToMe", "PacelineReuseSteps", "PacelineCompileUNet"])
def test_in_nodes_2_a_node_is_as_high_as_what_it_shows(page: Page, kind: str):
    page.use(VUE)
    node = page.build(f"return make('{kind}', 0, 0, {{}}).id;")
    page.show_node(node, zoom=1.0)
    empty = f"""
    const node = document.querySelector("[data-node-id='{node}']");
    const rows = [...node.querySelectorAll("button, input, [role=combobox], .paceline-badge")];
    const below = rows.map((row) => row.getBoundingClientRect().bottom);
    return node.getBoundingClientRect().bottom - Math.max(...below);
    """
    height = f"return document.querySelector(\"[data-node-id='{node}']\").getBoundingClientRect().height"
    page.screenshot(f"height_{kind}")
    folded = page.script(height)
    assert page.script(empty) < 40
    advanced = f"[...document.querySelectorAll(\"[data-node-id='{node}'] button\")]"
    advanced += ".find(({ textContent }) => textContent.includes('advanced')).click()"
    page.script(advanced)
    page.wait(lambda: page.script(height) > folded + 50, "advanced inputs")
    assert page.script(empty) < 40
    page.script(advanced)
    page.wait(lambda: abs(page.script(height) - folded) < 2, "height without them")
    page.load(page.workflow())
    page.show_node(node, zoom=1.0)
    assert page.script(height) == pytest.approx(folded, abs=2)


@pytest.mark.parametrize(("before", "after"), [(CANVAS, VUE), (VUE, CANVAS)])
def test_a_file_saved_in_the_other_renderer_has_nodes_as_high_as_what_they_show(page: Page, before: str, after: str):
    heights = {}
    for renderer in (after, before):
        page.use(renderer)
        node = page.build("return make('PacelineApplyToMe', 0, 0, {}).id;")
        page.show_node(node, zoom=1.0)
        heights[renderer] = page.script("return app.graph.getNodeById(args[0]).size[1]", node)
    saved = page.workflow()
    page.empty()
    page.use(after)
    page.load(saved)
    page.show_node(node, zoom=1.0)
    page.screenshot(f"height_saved_in_{before}")
    assert page.script("return app.graph.getNodeById(args[0]).size[1]", node) == pytest.approx(heights[after], abs=12)
