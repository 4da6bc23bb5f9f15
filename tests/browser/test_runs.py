"""What a badge says belongs to a run, whoever started it and whenever the page was loaded."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from browser.page import ATTENTION, SAMPLER, TOME, Page

ACTIVE = "active: ●active in 3 of 7 self-attention blocks"

pytestmark = pytest.mark.usefixtures("quiet_console", "ran")


@pytest.fixture
def second_tab(page: Page) -> Iterator[str]:
    """Another tab, with a client id of its own, as WebDriver names it; the first one is in front."""
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    page.open()
    second = page.driver.current_window_handle
    page.driver.switch_to.window(first)
    yield second
    for handle in page.driver.window_handles:
        if handle != first:
            page.driver.switch_to.window(handle)
            page.driver.close()
    page.driver.switch_to.window(first)


def start(page: Page, steps: int, cancel: bool = False) -> None:
    """Queue the open workflow without waiting for its end; ``cancel``: until a node of ours has said something."""
    page.script(
        """
        const sampler = app.graph.getNodeById(args[0]);
        sampler.widgets.find((w) => w.name === "steps").value = args[1];
        sampler.widgets.find((w) => w.name === "seed").value = args[2];
        window.states = [];
        const heard = (event) => window.states.push([event.detail.node, event.detail.state, event.detail.headline]);
        app.api.addEventListener("paceline.activity", heard);
        window.outcome = null;
        for (const name of ["execution_success", "execution_interrupted", "execution_error"])
          app.api.addEventListener(name, () => (window.outcome ??= name), { once: true });
        if (args[3]) app.api.addEventListener("paceline.activity", () => app.api.interrupt(), { once: true });
        await app.queuePrompt(0);
        """,
        SAMPLER,
        steps,
        time.time_ns() % 2**31,
        cancel,
    )


def idle(page: Page) -> bool:
    with urllib.request.urlopen(f"{page.base_url}/queue", timeout=30) as answer:
        queue = json.load(answer)
    return not queue["queue_running"] and not queue["queue_pending"]


def test_another_clients_run_of_the_same_nodes_changes_no_badge(page: Page):
    prompt = page.script("return (await app.graphToPrompt()).output")
    prompt[str(TOME)]["inputs"]["max_downsample"] = "8"
    before = page.badges()
    body = json.dumps({"prompt": prompt}).encode()
    request = urllib.request.Request(f"{page.base_url}/prompt", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        prompt_id = json.load(answer)["prompt_id"]
    page.wait(lambda: idle(page), "end of the other run", 120)
    # The other run did say something, to nobody.
    with urllib.request.urlopen(f"{page.base_url}/paceline/run?prompt_id={prompt_id}", timeout=30) as answer:
        said = {told["node"]: told["headline"] for told in json.load(answer)["activities"]}
    assert said[str(TOME)] == "active in 7 of 7 self-attention blocks"
    page.settle()
    assert page.badges() == before


def test_a_second_tab_has_the_badges_too(page: Page, second_tab: str, ran: dict[str, Any]):
    first = page.driver.current_window_handle
    page.driver.switch_to.window(second_tab)
    page.load(ran)
    page.wait(lambda: page.badges().get(str(TOME)) == ACTIVE, "badges of the first tab's run")
    page.driver.switch_to.window(first)
    page.script("app.graph.getNodeById(args[0]).widgets.find((w) => w.name === 'max_downsample').value = '8'", TOME)
    assert page.run() == "success"
    page.driver.switch_to.window(second_tab)
    words = "settings changed since · active in 7 of 7 self-attention blocks"
    page.wait(lambda: page.badges().get(str(TOME), "").endswith(words), "badge of the new run")


def test_a_run_that_began_before_the_page_is_shown(page: Page, ran: dict[str, Any]):
    start(page, steps=2000)  # more than there is time for: it is cancelled
    page.wait(lambda: page.badges().get(str(TOME), "").startswith("working"), "sampling")
    assert page.badges()[str(ATTENTION)] == "working: ↻sampling"
    page.screenshot("badge_sampling")
    page.reload().load(ran)
    page.wait(lambda: page.badges().get(str(TOME), "") == "working: ↻sampling", "badge of the run that goes on")
    page.settle()
    page.script("await app.api.interrupt()")
    cancelled = "cancelled: ×cancelled · active in 3 of 7 self-attention blocks"
    page.wait(lambda: page.badges().get(str(TOME), "") == cancelled, "badge that says cancelled")
    page.screenshot("badge_cancelled")
    page.reload().load(ran)
    page.wait(lambda: page.badges().get(str(TOME), "") == cancelled, "badge of the cancelled run")


def test_cancelling_before_the_first_step_says_cancelled(page: Page):
    start(page, steps=2000, cancel=True)
    page.wait(lambda: page.script("return window.outcome") == "execution_interrupted", "end")
    page.wait(lambda: page.badges().get(str(TOME), "").startswith("cancelled: ×cancelled"), "badge")
    assert all("not active" not in text and "no call" not in text for text in page.badges().values())


def test_an_open_tooltip_goes_on_with_its_badge(page: Page):
    page.show_node(TOME)  # tests before may have moved the graph, and what is out of sight takes no focus
    page.script("args[0].focus()", page.badge(TOME))
    page.wait(lambda: page.element(".paceline-tooltip"), "tooltip")
    # Noted by the page: a slow test could look too late.
    page.script(
        """
        const seen = (window.tooltips = new Set());
        const note = () => seen.add(document.querySelector(".paceline-tooltip")?.textContent ?? "");
        new MutationObserver(note).observe(document.body, { childList: true, characterData: true, subtree: true });
        """
    )
    start(page, steps=30)
    seen = "return [...window.tooltips].some((text) => text.includes(args[0]))"
    page.wait(lambda: page.script(seen, "sampling"), "tooltip of the run")
    tooltip = "return document.querySelector('.paceline-tooltip')?.textContent ?? ''"
    page.wait(lambda: "active in 3 of 7" in page.script(tooltip), "tooltip of the end", 120)
    page.script("args[0].blur()", page.badge(TOME))


def test_a_node_whose_work_a_later_one_replaces_says_so(page: Page):
    page.script(
        """
        const { graph } = app.canvas, first = graph.getNodeById(args[0]);
        const second = LiteGraph.createNode(first.type);
        graph.add(second);
        for (const [index, { value }] of first.widgets.entries())
          if (second.widgets[index]) second.widgets[index].value = value;
        window.later = second.id;
        for (const { target_id, target_slot } of first.outputs[0].links.map((id) => graph.links.get(id)))
          second.connect(0, graph.getNodeById(target_id), target_slot);
        first.connect(0, second, 0);
        """,
        TOME,
    )
    assert page.run() == "success"
    later = page.script("return window.later")
    # A run's last words come a moment after its end.
    badges = page.wait(lambda: (seen := page.badges()).get(str(later)) == ACTIVE and seen, "end of the work")
    assert badges[str(TOME)] == f"inactive: ○replaced by Apply ToMe #{later}"
    assert str(ATTENTION) in badges


def test_a_message_touches_its_own_node_only_among_a_hundred(page: Page):
    """However many nodes there are: one chip is written, and all others are left alone."""
    touched, text = page.script(
        """
        const { ActivityStore } = await import(args[0]), { createBadges } = await import(args[1]);
        const { graph } = app.canvas, store = new ActivityStore(), badges = createBadges(store);
        badges.kind.widget = "$$test-badge";
        badges.start();
        const nodes = Array.from({ length: 100 }, () => LiteGraph.createNode("PacelineFuseQKV"));
        for (const node of nodes) graph.add(node);
        const tell = (node, headline) => store.update(app.rootGraph.id, String(node.id),
          { activity: { state: "active", title: "", headline, counts: {}, details: [] } });
        for (const node of nodes) tell(node, "active 0");
        const element = (node) => node.widgets.find((widget) => widget.name === "$$test-badge").element;
        const all = nodes.map(element), seen = new MutationObserver(() => {});
        const everything = { subtree: true, childList: true, characterData: true, attributes: true };
        for (const one of all) seen.observe(one, everything);
        tell(nodes[42], "active 1");
        const changes = seen.takeRecords().map(({ target }) => all.findIndex((one) => one.contains(target)));
        seen.disconnect();
        for (const node of nodes) graph.remove(node);
        return [changes, all[42].textContent];
        """,
        *(f"/extensions/{page.scripts()}/js/{name}.js" for name in ("store", "badges")),
    )
    assert text.endswith("active 1")
    assert set(touched) == {42}
