"""Our settings and our report on ComfyUI's page, what a screen reader makes of them, presets that become nodes."""

from __future__ import annotations

import json
import urllib.request
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser.layout import overlapping
from browser.page import CANVAS, ESCAPE, Page

if TYPE_CHECKING:
    from comfy_host.server import ComfyServer

pytestmark = pytest.mark.usefixtures("quiet_console")


def test_the_settings_page_shows_our_settings(page: Page, server: ComfyServer, axe):
    page.script("await app.extensionManager.command.execute('Comfy.ShowSettingsDialog')")
    search = page.wait(lambda: page.element("[role=dialog] input"), "settings")
    search.send_keys("Paceline")
    size = "return document.querySelector('.paceline-cache output')?.textContent"
    page.wait(lambda: page.script(size) not in (None, "…"), "size of the cache")
    page.screenshot("settings")
    assert page.script(size) == "empty"
    assert page.text(".paceline-cache code") == str(compiled(server))
    assert not page.element(".paceline-cache button").is_enabled()
    assert axe(".paceline-cache") == []
    page.press(ESCAPE)
    page.wait(lambda: page.element(".paceline-cache") is None, "end of the settings")
    for method in ("GET", "DELETE"):
        request = urllib.request.Request(f"{page.base_url}/api/paceline/cache", method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.load(answer) == {"bytes": 0, "path": str(compiled(server))}


def compiled(server: ComfyServer) -> Path:
    """Where the server keeps compiled code."""
    return server.base_directory / "user" / "__paceline" / "compiled"


def test_the_report_lists_our_nodes_and_obeys_the_keyboard(page: Page, tome_workflow: dict[str, Any], axe):
    page.use(CANVAS)
    page.load(tome_workflow | {"id": str(uuid.uuid4())})
    labels = page.script("return app.extensionManager.command.commands.map((c) => [c.id, c.label])")
    assert ["Paceline.Report", "Paceline: report"] in labels
    page.script("await app.extensionManager.command.execute('Paceline.Report')")
    dialog = page.wait(lambda: page.element("dialog.paceline-dialog[open]"), "report")
    page.screenshot("report")
    for title in ("Apply ToMe (#4)", "Set Attention Processor (#5)", "Optimization Report (#10)"):
        assert title in dialog.text
    assert "not run yet" in dialog.text
    assert page.driver.switch_to.active_element.text == "Close"
    assert axe("dialog.paceline-dialog") == []
    page.press(ESCAPE)
    page.wait(lambda: page.element("dialog.paceline-dialog") is None, "end of the report")


def test_a_report_in_its_node_has_headings_and_details(page: Page, ran):
    page.use(CANVAS)
    page.load(ran)
    page.wait(lambda: page.element(".paceline-report-text"), "report in the node")
    lines = page.script(
        """
        return [...document.querySelectorAll(".paceline-report-text > *")].map((line) => {
          const { fontWeight, color, paddingLeft } = getComputedStyle(line);
          return [line.dataset.level, line.textContent, Number(fontWeight), color, parseFloat(paddingLeft)];
        });
        """
    )
    by_level = {level: [line[1:] for line in lines if line[0] == level] for level in ("0", "1", "2")}
    assert [text for text, *_ in by_level["0"]][1:] == ["Set Attention Processor", "Apply ToMe"]
    assert any(text.startswith("the run took ") for text, *_ in by_level["1"])
    (title, line, detail) = (by_level[level][0] for level in "012")
    assert title[1] > line[1] and line[2] != detail[2] and title[3] < line[3] < detail[3]


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
    with page.slow_connection():
        page.script(f"{menu}.callback()", made)  # nothing was run before, and nothing is sampled for it
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
