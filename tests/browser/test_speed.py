"""Where the time goes: the tab "Speed", the chip on a sampler, and what Profile shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser.graphs import TRAINED, example
from browser.page import ATTENTION, PICTURES, SAMPLER, TOME, VUE, Page, save
from comfy_host.paths import ROOT

# With each change the chip and the tab are looked at in test_faster.py.
pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("quiet_console")]

CHIP = """
const widget = app.canvas.graph.getNodeById(args[0])?.widgets?.find(({ name }) => name === "$$paceline-chip");
return widget?.element.firstChild?.textContent ?? "";
"""
SEED_AND_STEPS = "const w = app.graph.getNodeById(args[0]).widgets; w[0].value = args[1]; w[2].value = 4"
MODE = "for (const id of args[0]) app.graph.getNodeById(id).mode = args[1]"


@pytest.fixture
def timed(page: Page, seeds: Iterator[int], sd15_checkpoint: Path) -> dict[str, str]:
    """The example, run without and then with our nodes; what its chip said each time."""

    def draw() -> dict[str, str]:
        page.use(VUE)
        page.load(example("Text to image - token merging", sd15_checkpoint))
        found = {}
        for name, mode, said in (("off", 4, "plain · "), ("on", 0, "x against plain · ")):
            page.script(MODE, [TOME, ATTENTION], mode)
            page.script(SEED_AND_STEPS, SAMPLER, next(seeds))
            assert page.run() == "success"
            # What the chip said of an earlier run stands there until then.
            found[name] = page.wait(lambda said=said: said in (text := chip(page)) and text, "chip")
        return found

    return page.once("timed", draw)


def chip(page: Page) -> str:
    return page.script(CHIP, SAMPLER)


def speed_tab(page: Page) -> Any:
    if page.element(".paceline-speed") is None:
        page.script("await app.extensionManager.command.execute('Workspace.ToggleBottomPanelTab.paceline.speed')")
    return page.wait(lambda: page.element(".paceline-speed"), "tab")


def test_a_profile_is_shown_in_the_node_and_in_the_tab(page: Page, timed: dict[str, str], axe):
    page.use(VUE)
    node = page.build(
        TRAINED
        + """
        const profile = make("PacelineProfile", 660, 0, { seed: 1, cfg: 2, steps: 3 });
        link(loader, 0, profile, "model");
        sampled(profile);
        return profile.id;
        """
    )
    assert page.run(seconds=200) == "success"
    page.show_node(node, zoom=0.9)
    page.wait(lambda: page.element(".paceline-profile .paceline-bar"), "profile")
    speed_tab(page)
    page.settle()
    page.screenshot("profile")
    if PICTURES:
        picture = page.picture_of(".paceline-speed", margin=0)
        above = "return arguments[0].querySelectorAll('.paceline-bar')[2].offsetTop - arguments[0].offsetTop"
        profile = page.driver.execute_script(above, page.element(".paceline-speed"))
        save(picture.crop((0, 0, picture.width, 2 * profile)), ROOT / "docs" / "speed.png")
    kinds = "return [...document.querySelectorAll(args[0])].map((l) => l.dataset.kind)"
    in_node = page.script(kinds, ".paceline-profile .paceline-bar:nth-of-type(2) li")
    assert {"attention", "convolution", "linear"} <= set(in_node)
    assert page.wait(lambda: page.script(kinds, ".paceline-speed .paceline-bar:nth-of-type(2) li"), "tab") == in_node
    assert axe(".paceline-profile") == []
    page.open()  # a page that is loaded again still has its runs
    speed_tab(page)
    assert "samplingRun" in page.wait(lambda: page.script(kinds, ".paceline-speed .paceline-bar li"), "runs")
    page.script("await app.extensionManager.command.execute('Workspace.ToggleBottomPanelTab.paceline.speed')")
