"""A node of ours is as high as what it shows, in both renderers, with advanced inputs folded and not."""

from __future__ import annotations

from typing import Any

import pytest
from browser.page import TOME, VUE, Page

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


def test_in_nodes_2_a_node_is_as_high_as_what_it_shows(page: Page):
    page.use(VUE)
    kinds = ("PacelineApplyToMe", "PacelineReuseSteps", "PacelineCompileUNet")
    nodes = page.build("return args[0].map((kind, at) => make(kind, 420 * at, 0, {}).id)", kinds)
    page.show_node(nodes[1], zoom=1.0)
    page.screenshot("heights")
    folded = [page.script(SHOWN, node) for node in nodes]
    assert all(empty < 40 for _, empty in folded)
    page.script(ADVANCED, nodes)
    page.wait(lambda: all(page.script(SHOWN, node)[0] > folded[at][0] + 20 for at, node in enumerate(nodes)), "inputs")
    assert all(page.script(SHOWN, node)[1] < 40 for node in nodes)
    page.script(ADVANCED, nodes)

    def as_before() -> bool:
        return all(abs(page.script(SHOWN, node)[0] - folded[at][0]) < 2 for at, node in enumerate(nodes))

    page.wait(as_before, "height without them")
    page.load(page.workflow())
    page.show_node(nodes[1], zoom=1.0)
    assert as_before()


SHOWN = """
const node = document.querySelector(`[data-node-id="${args[0]}"]`), { bottom, height } = node.getBoundingClientRect();
const rows = [...node.querySelectorAll("button, input, [role=combobox], .paceline-badge")];
return [height, bottom - Math.max(...rows.map((row) => row.getBoundingClientRect().bottom))];
"""
"""Script: how high a node is, and how much of it is empty below what stands in it."""

ADVANCED = """
for (const node of args[0]) {
  const buttons = [...document.querySelectorAll(`[data-node-id="${node}"] button`)];
  buttons.find(({ textContent }) => textContent.includes("advanced")).click();
}
"""
"""Script: show the advanced inputs of nodes, or hide them."""
