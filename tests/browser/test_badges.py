"""The badges of our nodes, in both renderers and both themes; what they say belongs to a run."""

from __future__ import annotations

import time
from typing import Any

import pytest
from browser.page import ATTENTION, CANVAS, SAMPLER, TOME, VUE, Page
from cases import often

ACTIVE = "on: ●active in 3 of 7 self-attention blocks"

pytestmark = pytest.mark.usefixtures("quiet_console", "ran")


@pytest.mark.parametrize("renderer", often([VUE], [CANVAS, VUE]))
def test_a_badge_says_what_the_node_did_and_details_at_a_touch(page: Page, renderer: str, axe):
    page.use(renderer)
    page.show_node(TOME)
    badge = page.badge(TOME)
    page.screenshot(f"badge_{renderer}")
    assert badge.is_displayed()
    assert badge.text.endswith("active in 3 of 7 self-attention blocks")
    assert badge.get_attribute("data-state") == "on"
    area = badge.rect
    node = page.script(
        """
        const element = document.querySelector(`[data-node-id="${args[0]}"]`); // in Nodes 2.0
        if (element) return element.getBoundingClientRect().toJSON();
        const { pos, size } = app.canvas.graph.getNodeById(args[0]), { scale, offset } = app.canvas.ds;
        const { left, top } = app.canvas.canvas.getBoundingClientRect();
        const x = left + (pos[0] + offset[0]) * scale, y = top + (pos[1] + offset[1]) * scale;
        return { left: x, right: x + size[0] * scale, top: y, bottom: y + size[1] * scale };
        """,
        TOME,
    )
    assert node["left"] <= area["x"]
    assert area["x"] + area["width"] <= node["right"] + 1
    assert node["top"] <= area["y"]
    assert area["y"] + area["height"] <= node["bottom"] + 1
    assert area["height"] < 40
    assert axe(".paceline-badge-row") == []

    tooltip = badge.get_attribute("title")
    assert "384 -> 192 tokens" in tooltip and "fallback" not in tooltip


def test_a_badge_is_not_saved(page: Page, ran: dict[str, Any]):
    assert set(page.badges()) == {str(TOME), str(ATTENTION)}
    saved = {node["id"]: node for node in page.workflow()["nodes"]}
    for node in ran["nodes"]:
        values = node.get("widgets_values", [])  # inputs that came after the file was saved stand behind them
        assert saved[node["id"]].get("widgets_values", [])[: len(values)] == values
    assert "$$paceline" not in page.script("return JSON.stringify((await app.graphToPrompt()).output)")


@pytest.mark.parametrize("renderer", [CANVAS, VUE])
def test_badges_are_seen_once_at_every_zoom_until_they_are_switched_off(page: Page, renderer: str):
    """On the canvas above the node where the node does not show them; Nodes 2.0 always does."""
    page.use(renderer)
    page.show_node(TOME, zoom=1.2)
    assert page.badge(TOME).is_displayed()
    assert not any(text.startswith("●") for text in page.drawn())
    for zoom in (0.55, 0.3):
        page.show_node(TOME, zoom=zoom)
        page.screenshot(f"badge_zoom_{renderer}_{zoom}")
        assert any(text.startswith("● ac") for text in page.drawn()) == (renderer == CANVAS), zoom
        assert page.badge(TOME).is_displayed() == (renderer == VUE), zoom
    page.setting("Paceline.Badges", False)
    assert not any(text.startswith("● ac") for text in page.drawn())
    assert page.badges() == {}
    page.setting("Paceline.Badges", True)
    page.settle()
    assert page.badges()[str(TOME)] == ACTIVE


def test_a_node_says_before_it_has_run_what_it_cannot_do(page: Page, ran: dict[str, Any]):
    page.use(VUE)
    node = page.script(
        """
        const { graph } = app.canvas, node = LiteGraph.createNode("PacelineCompileUNet");
        graph.add(node);
        const sampler = graph.getNodeById(args[1]);
        const { origin_id, origin_slot } = graph.links.get(sampler.inputs[0].link);
        graph.getNodeById(origin_id).connect(origin_slot, node, 0);
        node.connect(0, sampler, 0);
        node.pos = [graph.getNodeById(args[0]).pos[0], graph.getNodeById(args[0]).pos[1] - 400];
        app.extensionManager.workflow.activeWorkflow.changeTracker.checkState?.();
        return node.id;
        """,
        TOME,
        SAMPLER,
    )
    known = "waiting: ◔gains little on a processor, and compiles for minutes first"
    page.wait(lambda: page.badges().get(str(node)) == known, "what is known before a run")
    page.show_node(node)
    page.screenshot("badge_before_a_run")
    assert page.badges()[str(TOME)].endswith("active in 3 of 7 self-attention blocks")


def test_badges_work_inside_of_a_subgraph(page: Page):
    page.script(
        """
        const { graph } = app.canvas;
        const items = new Set(args.map((id) => graph.getNodeById(id)));
        window.outer = graph.convertToSubgraph(items).node.id;
        """,
        TOME,
        ATTENTION,
    )
    page.settle()
    assert page.run() == "success"
    page.script("const node = app.canvas.graph.getNodeById(window.outer); app.canvas.openSubgraph(node.subgraph, node)")
    page.wait(lambda: ACTIVE in page.badges().values(), "badge in the subgraph")
    page.script("app.canvas.setGraph(app.rootGraph)")
    page.settle()
    assert page.badges() == {}
    # From outside the node says for all that are inside of it.
    page.show_node(page.script("return window.outer"), zoom=1)
    assert "○ 1 not active · 1 active" in page.drawn()
    page.screenshot("badge_of_a_subgraph")


def set_value(page: Page, node: int, name: str, value: Any) -> None:
    page.script(
        "app.canvas.graph.getNodeById(args[0]).widgets.find((w) => w.name === args[1]).value = args[2]",
        node,
        name,
        value,
    )


def test_what_cannot_help_is_on_the_badge_and_ends_the_run_only_where_that_is_asked_for(page: Page):
    set_value(page, ATTENTION, "backend", "flash")
    assert page.run() == "success"
    assert page.badges()[str(TOME)] == ACTIVE
    assert page.badges()[str(ATTENTION)].startswith("inactive: ○not possible here: ")
    page.show_node(ATTENTION)
    page.screenshot("badge_cannot_help")

    set_value(page, ATTENTION, "strict", True)
    assert page.run() != "success"
    failed = "failed: ▲The attention backend 'flash' cannot be used here: "
    page.wait(lambda: page.badges()[str(ATTENTION)].startswith(failed), "badge that says what is wrong")
    page.screenshot("badge_failed")


def start(page: Page, steps: int) -> None:
    """Queue the open workflow without waiting for its end."""
    page.script(
        """
        const sampler = app.graph.getNodeById(args[0]);
        sampler.widgets.find((w) => w.name === "steps").value = args[1];
        sampler.widgets.find((w) => w.name === "seed").value = args[2];
        await app.queuePrompt(0);
        """,
        SAMPLER,
        steps,
        time.time_ns() % 2**31,
    )


def test_a_cancelled_run_says_what_was_done_until_then(page: Page):
    page.script("window.steps = 0; app.api.addEventListener('progress', () => (window.steps += 1))")
    start(page, steps=2000)  # more than there is time for
    page.wait(lambda: page.badges().get(str(TOME), "").startswith("working"), "sampling")
    assert page.badges()[str(ATTENTION)] == "working: ↻sampling"
    page.screenshot("badge_sampling")
    page.wait(lambda: page.script("return window.steps") > 1, "steps")
    page.script("await app.api.interrupt()")
    cancelled = "cancelled: ×cancelled · active in 3 of 7 self-attention blocks"
    page.wait(lambda: page.badges().get(str(TOME), "") == cancelled, "badge that says cancelled")
    page.screenshot("badge_cancelled")
