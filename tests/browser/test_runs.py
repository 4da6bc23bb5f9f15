"""What a badge says belongs to a run, whoever started it."""

from __future__ import annotations

import re
import time

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
