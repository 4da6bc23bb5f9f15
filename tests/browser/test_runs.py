"""What a badge says belongs to a run, whoever started it."""

from __future__ import annotations

import json
import re
import time
import urllib.request

import pytest
from browser.graphs import TRAINED
from browser.page import ATTENTION, SAMPLER, TOME, VUE, Page
from selenium.webdriver import ActionChains

pytestmark = pytest.mark.usefixtures("quiet_console", "ran")


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
    with urllib.request.urlopen(f"{page.base_url}/paceline/run?prompt_id={prompt_id}", timeout=30) as answer:
        assert json.load(answer)["outcome"] == "success"
    page.settle()
    assert page.badges() == before


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


def test_a_badge_tells_of_both_samplers_of_a_prompt(page: Page):
    """A picture, and a short pass over it, with one Reuse Steps: the second leaves nothing out."""
    page.use(VUE)
    node, report = page.build(
        TRAINED
        + """
        const reuse = make("PacelineReuseSteps", 320, 0, { budget: 1 });
        const [first, second] = [680, 1010].map((x) => make("KSampler", x, 0, { steps: 20, cfg: 2 }));
        second.widgets.find(({ name }) => name === "steps").value = 3;
        second.widgets.find(({ name }) => name === "denoise").value = 0.5;
        const report = make("PacelineOptimizationReport", 320, 480, {});
        report.setSize([590, 260]);
        link(loader, 0, reuse, "model");
        for (const sampler of [first, second]) {
          sampled(sampler);
          link(reuse, 0, sampler, "model");
        }
        link(first, 0, second, "latent_image");
        link(reuse, 0, report, "model");
        link(second, 0, report, "after");
        const decode = make("IconDecode", 1340, 0, {});
        link(second, 0, decode, "samples");
        link(decode, 0, make("PreviewImage", 1340, 130, {}), "images");
        return [reuse.id, report.id];
        """
    )
    assert page.run(seconds=120) == "success"
    badge = page.badges()[str(node)]
    assert re.fullmatch(r"active: ●\d+ of 2\d evaluations computed, [1-9]\d* forecast, in 1 of 2 runs", badge), badge
    page.show_node(node, zoom=1)
    ActionChains(page.driver).move_to_element(page.badge(node)).perform()
    tooltip = page.wait(lambda: page.text("[role=tooltip].paceline-tooltip"), "tooltip")
    page.screenshot("badge_of_two_runs")
    assert re.search(r"run 1: \d+ of 20 evaluations computed", tooltip), tooltip
    assert "run 2: nothing was reused: 3 steps are too few to leave one out" in tooltip
    page.show_node(report, zoom=1)
    ActionChains(page.driver).move_to_element(page.element(".paceline-report")).perform()
    page.wait(lambda: page.element(".paceline-tooltip") is None, "end of the tooltip")
    page.settle()
    page.screenshot("report_of_two_runs")
    said = page.text(".paceline-report")
    assert "run 2: nothing was reused" in said and "2 runs took" in said
