"""A video and its sound in the node Compare Models."""

from __future__ import annotations

import pytest
from browser.comparing import LOADED, looks_at
from browser.page import VUE, Page
from browser.video_files import as_a_video

pytestmark = pytest.mark.usefixtures("quiet_console")


def test_a_video_begins_with_its_worst_frame_moves_and_can_be_heard(page: Page, compared: int, server, client, axe):
    looks_at(page, compared, VUE)
    # Read here, as the history holds what other tests have sent, infinite numbers too, which is no JSON for a page.
    shown = (run["outputs"].get(str(compared), {}) for run in client.get("/history").values())
    (real,) = next(outputs["paceline_comparison"] for outputs in shown if "paceline_comparison" in outputs)
    page.script(
        """
        const { comparisonParts } = await import(`/extensions/${args[0]}/js/comparisons.js`);
        const panel = document.querySelector(".paceline-comparison");
        window.kept = [...panel.children];
        panel.replaceChildren(...comparisonParts([{ ...args[1], ...args[2] }]));
        """,
        page.scripts(),
        real,
        as_a_video(server.output_dir / "video"),
    )
    try:
        page.wait(lambda: page.script(LOADED), "pictures")
        assert page.text(".paceline-pager output") == "25 / 40: 0.25"
        assert page.text(".paceline-comparison .paceline-quality") == "audible difference"
        played = "return [...document.querySelectorAll('.paceline-sound')].map(({ innerText }) => innerText.trim())"
        assert page.script(played) == ["Baseline", "Optimized"]
        moving = (
            "const [one] = document.querySelectorAll('.paceline-motion'); return one.complete && one.naturalWidth > 0"
        )
        page.wait(lambda: page.script(moving), "video")
        page.screenshot("compare_video")
        assert axe(".paceline-comparison") == []
        page.click_on(lambda: page.driver.find_elements("css selector", ".paceline-pager button")[1], "next frame")
        page.wait(lambda: page.text(".paceline-pager output") == "27 / 40: 0", "next frame")
    finally:
        page.script("document.querySelector('.paceline-comparison').replaceChildren(...window.kept)")
