""" "Make this workflow faster": what it inserts, that one undo takes it back, and the measured trial."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from browser.layout import outside, overlapping
from browser.one_click import choose, graph, open_dialog, press
from browser.page import CANVAS, VUE, Page
from faster import PROMPT

pytestmark = pytest.mark.usefixtures("quiet_console")


@pytest.mark.parametrize("renderer", [CANVAS, VUE])
def test_one_click_inserts_and_one_undo_takes_it_back(page: Page, baseline: dict[str, Any], renderer: str):
    page.use(renderer)
    before = graph(page)
    page.show_node(next(node["id"] for node in baseline["nodes"] if node["type"] == "SaveImage"))
    dialog = open_dialog(page)
    assert "Set Attention Processor" in dialog.text and "Apply ToMe" in dialog.text
    assert "Reuse Steps is left out: of so few steps (1) each changes the picture too much." in dialog.text
    page.screenshot(f"faster_dialog_{renderer}")
    choose(page, "lossless")
    assert "Apply ToMe" not in page.text(".paceline-faster ul")
    choose(page, "fast")
    press(page, "Insert")
    page.wait(lambda: page.element(".paceline-trial"), "offer to measure")
    press(page, "Not now")
    page.wait(lambda: outside(page) == [], "new nodes in the view")
    page.screenshot(f"faster_in_view_{renderer}")
    types, wires = graph(page)
    assert types - before[0] == {"PacelineApplyToMe", "PacelineSetAttentionProcessor"}
    assert ("CheckpointLoaderSimple", 0, "PacelineApplyToMe", 0) in wires
    assert ("PacelineSetAttentionProcessor", 0, "KSampler", 0) in wires
    assert ("CheckpointLoaderSimple", 0, "KSampler", 0) not in wires
    assert overlapping(page) == []
    page.fit()
    page.screenshot(f"faster_inserted_{renderer}")
    dialog = open_dialog(page)  # what is there is not inserted twice
    choose(page, "fast")
    assert "there already" in dialog.text
    press(page, "Cancel")
    page.script("await app.extensionManager.command.execute('Comfy.Undo')")
    page.settle()
    assert graph(page) == before


def test_cancelling_a_trial_that_waits_stops_nobody_elses_run(page: Page, baseline, client, sd15_checkpoint: Path):
    prompt = copy.deepcopy(PROMPT)
    prompt["1"]["inputs"]["ckpt_name"] = sd15_checkpoint.name
    prompt["5"]["inputs"] |= {"model": ["1", 0], "steps": 2000}

    def ids(which: str) -> list[str]:
        return [item[1] for item in client.get("/queue")[which]]

    others = client.queue(prompt)
    try:
        page.wait(lambda: ids("queue_running") == [others], "run of somebody else")
        open_dialog(page)
        choose(page, "fast")
        press(page, "Insert")
        page.wait(lambda: page.element(".paceline-trial"), "offer to measure")
        press(page, "Measure")
        page.wait(lambda: ids("queue_pending"), "measurement that waits")
        press(page, "Cancel")
        page.wait(lambda: "Stopped. What was not" in page.element("dialog.paceline-dialog").text, "end")
        page.wait(lambda: not ids("queue_pending"), "empty queue")
        page.settle()
        assert ids("queue_running") == [others]
    finally:
        client.post("/interrupt", {"prompt_id": others})
    press(page, "Undo")
    page.wait(lambda: not ids("queue_running"), "end of the run of somebody else")


def test_foreign_nodes_become_ours_and_subgraphs_are_looked_into(page: Page, baseline: dict[str, Any]):
    workflow = copy.deepcopy(baseline)
    page.load(workflow)
    page.script(
        """
        const { graph } = app.canvas, sampler = graph.getNodeById(args[0]);
        const foreign = LiteGraph.createNode("TomePatchModel");
        graph.add(foreign);
        foreign.pos = [0, -400];
        graph.getNodeById(args[1]).connect(0, foreign, 0);
        foreign.connect(0, sampler, 0);
        window.outer = graph.convertToSubgraph(new Set([sampler])).node.id;
        """,
        *(
            next(node["id"] for node in workflow["nodes"] if node["type"] == name)
            for name in ("KSampler", "CheckpointLoaderSimple")
        ),
    )
    page.settle()
    open_dialog(page)
    choose(page, "lossless")
    press(page, "Insert")
    page.wait(lambda: page.element(".paceline-trial"), "offer to measure")
    press(page, "Not now")
    inside = page.script(
        """
        const { subgraph } = app.graph.getNodeById(window.outer);
        const sampler = subgraph.nodes.find((node) => node.type === "KSampler");
        const link = sampler.getInputLink(0);
        return subgraph.getNodeById(link.origin_id).type;
        """
    )
    assert inside == "PacelineSetAttentionProcessor"
    prompt = page.script("return (await app.graphToPrompt()).output")
    types = {node["class_type"]: node for node in prompt.values()}
    link = types["PacelineSetAttentionProcessor"]["inputs"]["model"]
    assert prompt[link[0]]["class_type"] == "PacelineApplyToMe"
    assert prompt[link[0]]["inputs"]["method"] == "merge"
