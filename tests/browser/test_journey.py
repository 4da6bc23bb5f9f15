"""What a new user does, from the default workflow to a comparison that is still there after a reload."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.one_click import choose, offers, open_dialog, press
from browser.page import CANVAS, VUE, Page
from PIL import Image

pytestmark = [pytest.mark.usefixtures("quiet_console"), pytest.mark.thorough]

CHIP = """
const sampler = app.graph.nodes.find((node) => node.type === "KSampler");
return sampler?.widgets?.find(({ name }) => name === "$$paceline-chip")?.element.firstChild?.textContent ?? "";
"""
LOADED = """
const pictures = [...document.querySelectorAll(".paceline-comparison .paceline-viewer img")];
return pictures.length >= 2 && pictures.every(({ complete, naturalWidth }) => complete && naturalWidth > 0);
"""
CLIPBOARD = """
const [item] = await navigator.clipboard.read();
const bytes = new Uint8Array(await (await item.getType("image/png")).arrayBuffer());
let text = "";
for (const byte of bytes) text += String.fromCharCode(byte);
return btoa(text);
"""
COMPARE = """
const { graph } = app, of = (type) => graph.nodes.find((node) => node.type === type);
const sampler = of("KSampler"), loader = of("CheckpointLoaderSimple");
const compare = LiteGraph.createNode("PacelineCompareModels");
graph.add(compare);
compare.pos = [sampler.pos[0], Math.max(...graph.nodes.map(({ pos, size }) => pos[1] + size[1])) + 80];
const inputOf = (name) => compare.inputs.findIndex((input) => input.name === name);
const link = (from, slot, name) => from.connect(slot, compare, inputOf(name));
link(loader, 0, "model_baseline");
link(loader, 2, "vae");
for (const [index, { name, link: id }] of sampler.inputs.entries()) {
  if (id == null) continue;
  const { origin_slot } = sampler.getInputLink(index);
  link(sampler.getInputNode(index), origin_slot, name === "model" ? "model_optimized" : name);
}
for (const { name, value } of sampler.widgets) {
  const widget = compare.widgets.find((candidate) => candidate.name === name);
  if (widget) widget.value = value;
}
compare.widgets.find(({ name }) => name === "runs").value = 2;
compare.widgets.find(({ name }) => name === "most_runs").value = 0;
return compare.id;
"""


def our_types(page: Page) -> set[str]:
    return {node["type"] for node in page.workflow()["nodes"] if node["type"].startswith("Paceline")}


@pytest.mark.parametrize("renderer", [CANVAS, VUE])
def test_the_way_of_a_new_user(page: Page, sd15_checkpoint: Path, seeds: Iterator[int], renderer: str):
    def look(step: str) -> None:
        page.fit()
        page.screenshot(f"journey_{renderer}_{step}")

    page.use(renderer)
    runs = page.script("return JSON.parse(sessionStorage.getItem('paceline.runs') ?? '[]').length")
    page.script(
        """
        const answer = await fetch("/templates/default.json");
        await app.loadGraphData(await answer.json(), true, true, "default");
        """
    )
    page.settle()
    values = {"ckpt_name": sd15_checkpoint.name, "width": 128, "height": 128, "steps": 12, "seed": next(seeds)}
    page.script(
        """
        for (const widget of app.graph.nodes.flatMap((node) => node.widgets ?? []))
          if (widget.name in args[0]) widget.value = args[0][widget.name];
          else if (widget.name === "control_after_generate") widget.value = "fixed";
        """,
        values,
    )
    page.dismiss()
    assert page.run(seconds=300) == "success"
    assert page.wait(lambda: page.script(CHIP), "chip").endswith("off")
    look("1_run")

    open_dialog(page)
    choose(page, "fast")
    page.screenshot(f"journey_{renderer}_2_faster")
    press(page, "Run once and look")
    assert "Reuse Steps" in offers(page, 300)[0]
    page.screenshot(f"journey_{renderer}_3_answer")
    press(page, "Keep")
    inserted = our_types(page)
    assert inserted

    page.script("app.graph.nodes.find((n) => n.type === 'KSampler').widgets[0].value = args[0]", next(seeds))
    assert page.run() == "success"
    chip = page.wait(lambda: "against off" in page.script(CHIP) and page.script(CHIP), "chip against off")
    look("4_chip")
    badges = page.badges()
    assert len(badges) == len(inserted)

    page.script("await app.extensionManager.command.execute('Workspace.ToggleBottomPanelTab.paceline.speed')")
    bars = ".paceline-speed .paceline-bar"
    page.wait(lambda: len(page.driver.find_elements("css selector", bars)) >= 2, "bars of both runs")
    shown = len(page.driver.find_elements("css selector", bars))
    assert shown == min(runs + 3, 8), "the run that is watched is one, its probe is none"
    page.settle()
    page.screenshot(f"journey_{renderer}_5_speed")
    page.script("await app.extensionManager.command.execute('Workspace.ToggleBottomPanelTab.paceline.speed')")

    compare = page.script(COMPARE)
    assert page.run(seconds=300) == "success"
    page.show_node(compare, zoom=0.8)
    verdict = page.wait(lambda: page.text(".paceline-comparison .paceline-verdict"), "verdict")
    page.wait(lambda: page.script(LOADED), "pictures")
    page.settle()
    page.screenshot(f"journey_{renderer}_6_compared")

    page.driver.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    )
    page.show_node(compare, zoom=1.0)
    page.click("Copy card", ".paceline-comparison")
    card = Image.open(io.BytesIO(base64.b64decode(page.wait(lambda: copied(page), "card"))))
    assert card.size == (1200, 630)
    card.save(page.screenshot(f"journey_{renderer}_7_card"))

    page.reload()
    page.wait(lambda: our_types(page) == {*inserted, "PacelineCompareModels"}, "workflow after the reload")
    page.wait(lambda: {**page.badges(), str(compare): ""} == {**badges, str(compare): ""}, "badges after the reload")
    page.wait(lambda: page.script(CHIP) == chip, "chip after the reload")
    page.show_node(compare, zoom=0.8)
    page.wait(lambda: page.text(".paceline-comparison .paceline-verdict") == verdict, "comparison after the reload")
    page.script("await app.extensionManager.command.execute('Workspace.ToggleBottomPanelTab.paceline.speed')")
    page.wait(lambda: len(page.driver.find_elements("css selector", bars)) >= 2, "bars after the reload")
    look("8_reloaded")
    page.script("await app.extensionManager.command.execute('Workspace.ToggleBottomPanelTab.paceline.speed')")


def copied(page: Page) -> str | None:
    """Return the picture in the clipboard, in base64; None while there is none."""
    try:
        return page.script(CLIPBOARD)
    except AssertionError:
        return None
