"""The third side of Compare Models: the plain model with as many steps as fit into the optimized one's time."""

from __future__ import annotations

import pytest
from browser.graphs import EMOJI
from browser.page import VUE, Page

pytestmark = pytest.mark.usefixtures("quiet_console")

MERGING = (
    EMOJI
    + """
const slow = make("SlowAttention", 0, 320, { ms_per_key: 1 });
const tome = make("PacelineApplyToMe", 320, 0, { preset: "quality" });
const rounds = { warmup_runs: 0, runs: 3, most_runs: 0 };
const settings = { seed: 42, steps: 3, cfg: 1, sampler_name: "euler", scheduler: args[0], ...rounds };
const compare = make("PacelineCompareModels", 700, 0, settings);
for (const name of ["width", "height"]) latent.widgets.find((widget) => widget.name === name).value = 16;
link(loader, 0, slow, "model");
link(slow, 0, tome, "model");
link(slow, 0, compare, "model_baseline");
link(tome, 0, compare, "model_optimized");
sampled(compare);
return compare.id;
"""
)
"""Token merging that saves time for certain, because attention is slow; given the scheduler."""

RIGHT = """
const picture = document.querySelector(".paceline-comparison .paceline-layer-right img");
if (!picture) return null;
await picture.decode();
return [picture.alt, picture.src];
"""


@pytest.mark.parametrize(
    ("scheduler", "sentence", "end", "state"),
    [
        ("normal", "would differ", " times as much.", "active"),
        pytest.param(
            "karras", "would do as well", ": you do not need this optimization.", "partly", marks=pytest.mark.thorough
        ),
    ],
)
def test_fewer_steps_in_the_same_time_are_shown_and_judged(page: Page, scheduler, sentence, end, state):
    page.use(VUE)
    compare = page.build(MERGING, scheduler)
    assert page.run() == "success"
    page.show_node(compare, zoom=0.9)
    label, optimized = page.wait(lambda: page.script(RIGHT), "picture")
    assert label == "Optimized"
    verdict = page.text(".paceline-comparison .paceline-verdict")
    assert f"fewer steps in the same time (2 of 3) {sentence}" in verdict and verdict.endswith(end)
    title = "return document.querySelector('.paceline-finding strong').dataset.state"
    assert page.script(title) == page.badge(compare).get_attribute("data-state") == state
    page.click("Plain model: 2 / 3 steps", ".paceline-comparison")
    label, control = page.script(RIGHT)
    assert label == "2 steps" and control != optimized
    page.screenshot(f"compare_fewer_steps_{state}")
