"""Benchmark Sweep in its node: cells as they are measured, a stop, and what a cell is good for."""

from __future__ import annotations

from typing import Any

import pytest
from browser.page import CANVAS, PICTURES, VUE, Page, save
from browser.sweeps import TOTAL, build
from comfy_host.paths import ROOT

pytestmark = pytest.mark.usefixtures("quiet_console")

METHODS, RATIOS = ("merge, kv_downsample", "0.25, 0.5") if PICTURES else ("merge", "0.25, 0.5, 0.75")
GRID = f"Apply ToMe.method: {METHODS}\nApplyToMe.preset: custom\nApplyToMe.ratio: {RATIOS}"
CELLS = 4 if PICTURES else 3
STATE = """
const text = document.querySelector(".paceline-sweep output")?.textContent ?? "";
return { text, points: document.querySelectorAll(".paceline-point").length };
"""


@pytest.fixture
def sweep(page: Page, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A sweep that was stopped after the first, looked at, and finished."""

    def stop_and_finish() -> dict[str, Any]:
        node = build(page, grid=GRID, study=f"browser {tmp_path_factory.mktemp('study').name}")
        # Stopped as soon as the plot has the first cell, by the page: a slow test would come too late.
        page.script(
            """
            window.stopped = null;
            app.api.addEventListener("execution_interrupted", () => (window.stopped = true));
            const look = () => document.querySelector(".paceline-point") ? app.api.interrupt() : setTimeout(look, 20);
            await app.queuePrompt(0);
            look();
            """
        )
        page.wait(lambda: page.script("return window.stopped"), "end of the run", 240)
        page.settle()
        page.show_node(node, zoom=0.7)
        page.screenshot("sweep_stopped")
        page.script("document.querySelector('.paceline-grid').dispatchEvent(new PointerEvent('pointerenter'))")
        page.wait(lambda: "about" in page.script(TOTAL), "time that the form knows from the first cell")
        stopped = {**page.script(STATE), "badge": page.badges()[str(node)]}
        assert page.run(seconds=300) == "success"
        return {"node": node, "stopped": stopped}

    return page.once("sweep", stop_and_finish)


@pytest.fixture
def swept(sweep: dict[str, Any]) -> int:
    """The number of the sweep's node."""
    return sweep["node"]


def test_a_stop_says_what_is_kept_and_offers_to_go_on(sweep: dict[str, Any]):
    stopped = sweep["stopped"]
    kept = stopped["points"]
    assert 1 <= kept < CELLS
    assert stopped["text"].startswith(f"{kept} / {CELLS} cells kept · about ")
    assert f"{kept} of {CELLS} cells kept: run it again to go on" in stopped["badge"]


@pytest.mark.parametrize("renderer", [CANVAS, VUE])
def test_the_plot_has_every_cell_the_plain_model_and_the_limit(page: Page, swept: int, renderer: str, axe):
    page.use(renderer)
    page.show_node(swept, zoom=0.8)
    page.wait(lambda: page.element(".paceline-plot"), "plot")
    page.screenshot(f"sweep_{renderer}")
    if PICTURES and renderer == VUE:
        save(page.picture_of(".paceline-sweep"), ROOT / "docs" / "sweep.png")
    assert page.script(STATE) == {"text": f"{CELLS} / {CELLS} cells", "points": CELLS}
    lines = page.script("return ['one', 'limit'].map((n) => document.querySelectorAll(`.paceline-plot-${n}`).length)")
    assert lines == [1, 1]
    assert axe(".paceline-sweep") == axe(".paceline-grid") == []
    best = page.script("return document.querySelectorAll('.paceline-point[data-best=true]').length")
    badge = page.badges()[str(swept)]
    # A best trade may change the picture more than is allowed for the preset.
    assert best or "no setting is certainly faster within the allowed difference" in badge


def test_the_pointer_shows_a_cells_verdict_and_picture(page: Page, swept: int):
    """The first cell was measured in the run that was stopped, and comes from the file of the study."""
    from selenium.webdriver import ActionChains

    page.use(VUE)
    page.show_node(swept, zoom=0.8)
    labels = set()
    for point in page.driver.find_elements("css selector", ".paceline-point circle"):
        ActionChains(page.driver).move_to_element(point).perform()
        labels.add(page.text(".paceline-cell strong"))
        assert " seed" in page.text(".paceline-cell p")
    assert len(labels) == CELLS
    ready = "const i = document.querySelector('.paceline-cell img'); return i?.complete && i.naturalWidth > 0"
    page.wait(lambda: page.script(ready), "picture of the cell")


def test_a_cell_is_applied_to_the_graph_and_taken_back(page: Page, swept: int):
    page.use(VUE)
    page.show_node(swept, zoom=0.8)
    before = page.workflow()
    page.script("document.querySelector('.paceline-point').dispatchEvent(new MouseEvent('click', { bubbles: true }))")
    button = "[...document.querySelectorAll('.paceline-cell button')].find((b) => b.textContent === args[0])"
    page.script(f"{button}.click()", "Apply to the graph")
    page.settle()
    page.screenshot("sweep_applied")
    added = [node for node in page.workflow()["nodes"] if node["type"] == "PacelineApplyToMe"]
    assert len(added) == 1
    overlaps = page.script(
        """
        const [made] = app.graph.nodes.filter(({ type }) => type === "PacelineApplyToMe");
        const hits = (a, b) => a.pos[0] < b.pos[0] + b.size[0] && b.pos[0] < a.pos[0] + a.size[0]
          && a.pos[1] < b.pos[1] + b.size[1] && b.pos[1] < a.pos[1] + a.size[1];
        const link = (node, input) => {
          const slot = node.inputs.findIndex(({ name }) => name === input);
          return app.graph.getNodeById(node.getInputLink(slot).origin_id).type;
        };
        const of = (type) => app.graph.nodes.find((node) => node.type === type);
        return { hit: app.graph.nodes.filter((node) => node !== made && hits(node, made)).length,
          sweep: link(of("PacelineBenchmarkSweep"), "model"), other: link(of("PacelineModelPrecision"), "model") };
        """
    )
    assert overlaps == {"hit": 0, "sweep": "IconModelLoader", "other": "PacelineApplyToMe"}
    page.script("await app.extensionManager.workflow.activeWorkflow.changeTracker.undo()")
    page.settle()
    assert {node["type"] for node in page.workflow()["nodes"]} == {node["type"] for node in before["nodes"]}


def test_a_cell_becomes_a_preset_that_the_menus_show(page: Page, swept: int):
    page.use(VUE)
    page.show_node(swept, zoom=0.8)
    page.wait(lambda: page.element(".paceline-cell button"), "cell")
    button = "[...document.querySelectorAll('.paceline-cell button')].find((b) => b.textContent === args[0])"
    page.script(f"{button}.click()", "Save as preset")
    options = """
      const node = LiteGraph.createNode("PacelineOptimizePreset");
      return (await (await app.api.fetchApi("/object_info/PacelineOptimizePreset")).json()).PacelineOptimizePreset
        .input.required.preset[1].options;
    """
    # Of a cell: the sweep itself saves one too, which is named as the study.
    page.wait(lambda: any(" - method" in name for name in page.script(options)), "preset in the menu")
