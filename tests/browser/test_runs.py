"""What a badge says belongs to a run, whoever started it and whenever the page was loaded."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from browser.graphs import TRAINED
from browser.page import ATTENTION, SAMPLER, TOME, VUE, Page

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


@pytest.mark.thorough
def test_a_real_compilation_shows_how_far_it_is(page: Page):
    """The demo's small model, compiled by torch without code for the machine, which takes a few seconds."""
    page.use(VUE)
    node = page.build(
        TRAINED
        + """
        const compile = make("PacelineCompileUNet", 320, 0, { backend: "aot_eager" });
        const sampler = make("KSampler", 680, 0, { steps: 2 });
        const decode = make("IconDecode", 1010, 0, {});
        link(loader, 0, compile, "model");
        link(compile, 0, sampler, "model");
        sampled(sampler);
        link(sampler, 0, decode, "samples");
        link(decode, 0, make("PreviewImage", 1010, 130, {}), "images");
        window.seen = [];
        app.api.addEventListener("paceline.compile", () => setTimeout(() => {
          const badge = compile.widgets.find(({ name }) => name === "$$paceline-badge")?.element;
          if (badge) window.seen.push([badge.textContent, badge.querySelector("progress").hidden]);
        }));
        return compile.id;
        """
    )
    page.show_node(node)
    assert page.run() == "success"
    seen = page.script("return window.seen")
    assert any(text.startswith("↻compiling 00:0") and not hidden for text, hidden in seen), seen
    assert seen[-1][1]  # it is compiled, the run goes on, and the bar is gone
    assert page.badges()[str(node)].startswith("active: ●compiled")
    page.screenshot("badge_compiled")
