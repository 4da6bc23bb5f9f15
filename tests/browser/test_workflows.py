"""Presets that become single nodes."""

from __future__ import annotations

from typing import Any

import pytest
from browser.layout import overlapping
from browser.page import CANVAS, Page

pytestmark = pytest.mark.usefixtures("quiet_console")


def test_a_preset_can_be_turned_into_single_nodes(page: Page, tome_workflow: dict[str, Any]):
    page.use(CANVAS)
    page.load(tome_workflow)
    made = page.script(
        """
        const [loader, tome, attention, sampler] = [2, 4, 5, 8].map((id) => app.graph.getNodeById(id));
        const preset = LiteGraph.createNode("PacelineOptimizePreset");
        app.graph.add(preset);
        preset.pos = [600, -600];
        preset.widgets[0].value = "fast";
        app.graph.remove(tome);
        app.graph.remove(attention);
        app.graph.remove(app.graph.getNodeById(10));
        loader.connect(0, preset, 0);
        preset.connect(0, sampler, 0);
        const text = LiteGraph.createNode("PreviewAny");
        app.graph.add(text);
        text.pos = [0, -2000];
        preset.connect(2, text, 0);
        return preset.id;
        """
    )
    menu = "app.collectNodeMenuItems(app.graph.getNodeById(args[0])).find((item) => item?.content?.startsWith('Turn'))"
    page.script("app.graph.getNodeById(args[0]).mode = 4", made)
    assert page.script(f"return {menu}.disabled", made)
    page.script("app.graph.getNodeById(args[0]).mode = 0", made)
    assert not page.script(f"return {menu}.disabled", made)
    page.show_node(made, zoom=1.0)
    page.click_title(made)
    in_toolbar = "return document.querySelector('.selection-toolbox .pi-sitemap')?.closest('button')"
    label = page.wait(lambda: page.script(f"{in_toolbar}?.ariaLabel"), "button above the selected node")
    assert label == "Paceline: turn into single nodes"
    page.screenshot("expand_button")
    with page.slow_connection():
        page.click(label, ".selection-toolbox")  # nothing was run before, and nothing is sampled for it
        page.wait(lambda: page.script("return app.graph.getNodeById(args[0]) == null", made), "single nodes")
    page.settle()
    page.screenshot("expanded")
    chain = page.script(
        """
        const types = [];
        let node = app.graph.getNodeById(8);
        while (node) {
          types.push(node.type);
          const link = node.inputs[0]?.link;
          node = link == null ? null : app.graph.getNodeById(app.graph.links.get(link).origin_id);
        }
        return types;
        """
    )
    assert chain[0] == "KSampler"
    assert chain[-1] == "CheckpointLoaderSimple"
    assert len(chain) > 2
    assert "PacelineOptimizePreset" not in chain
    assert all(kind.startswith("Paceline") for kind in chain[1:-1])
    # Who read the report has one still, and no node lies on another.
    assert (
        page.script(
            """
        const text = app.graph.nodes.find((node) => node.type === "PreviewAny");
        return app.graph.getNodeById(app.graph.links.get(text.inputs[0].link).origin_id).type;
        """
        )
        == "PacelineOptimizationReport"
    )
    assert overlapping(page) == []
    assert page.run() == "success"
