"""Make this workflow faster: what was inserted is measured, other settings are tried, and the result is kept or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser.cards import saved_card
from browser.graphs import TRAINED
from browser.one_click import choose, graph, open_dialog, press
from browser.page import CANVAS, PICTURES, VUE, Page
from comfy_host.paths import ROOT
from PIL import Image

pytestmark = pytest.mark.usefixtures("quiet_console")


def trial(page: Page) -> str:
    """Insert what is chosen, measure it, and return what is said at the end."""
    press(page, "Insert")
    page.wait(lambda: page.element(".paceline-trial"), "offer to measure")
    press(page, "Measure")
    page.wait(lambda: page.element(".paceline-trial li"), "first finding", 240)
    page.screenshot("faster_measuring")
    said = page.wait(lambda: page.text(".paceline-trial-result"), "result", 300)
    page.screenshot("faster_result")
    return said


@pytest.mark.thorough  # two whole trials
def test_a_trial_keeps_what_is_faster_and_undo_takes_all_of_it_back(page: Page, baseline: dict[str, Any]):
    page.script(
        """
        const { graph } = app, of = (type) => graph.nodes.find((node) => node.type === type);
        of("KSampler").widgets.find((widget) => widget.name === "steps").value = 8; // too few to try other settings
        const slow = LiteGraph.createNode("SlowAttention");
        graph.add(slow);
        slow.pos = [0, -400];
        of("CheckpointLoaderSimple").connect(0, slow, 0);
        slow.connect(0, of("KSampler"), 0);
        """
    )
    page.settle()
    before, slow = graph(page), page.workflow()
    dialog = open_dialog(page)
    choose(page, "fast")
    assert "Not measured here yet." in dialog.text
    said = trial(page)
    assert "x faster, difference" in said
    press(page, "Keep")
    page.settle()
    types, wires = graph(page)
    assert "PacelineApplyToMe" in types
    assert ("SlowAttention", 0, "PacelineApplyToMe", 0) in wires
    assert page.run() == "success"
    assert any(badge.startswith("active: ●") for badge in page.badges().values())
    # The next time it is known, until somebody wants to measure anew.
    page.reload().load(slow)
    dialog = open_dialog(page)
    choose(page, "fast")
    assert said in dialog.text and "Measured on this machine before" in dialog.text
    page.screenshot("faster_known")
    press(page, "Measure anew")
    assert "Apply ToMe" in dialog.text and "Measured here before: saves" in dialog.text
    assert "x faster" in trial(page)
    press(page, "Undo")
    page.settle()
    assert graph(page) == before


STEPS = (
    "app.graph.nodes.find((node) => node.type === 'KSampler').widgets.find((widget) => widget.name === 'steps').value"
)


LESS_WORK = """
const { api } = app, { fetchApi } = api;
api.fetchApi = (route, request) => {
  const body = route === "/paceline/search" ? JSON.stringify({ ...JSON.parse(request.body), most: 8 }) : request?.body;
  return fetchApi.call(api, route, request && { ...request, body });
};
"""
"""Script that lets searches draw less than they would; ``delete app.api.fetchApi`` ends that."""


@pytest.fixture
def searching(page: Page, tome_workflow: dict[str, Any]) -> Iterator[tuple[set[str], set[tuple[Any, ...]]]]:
    """Start a search on a small picture of ten steps, and return its graph as it was.

    Random weights change a latent so little that fewer steps end where all of them do. Apply ToMe and Set Attention
    Processor are there already, so that no node is timed.
    """
    page.use(CANVAS)
    for node in tome_workflow["nodes"]:
        if node["type"] == "EmptyLatentImage":
            node["widgets_values"][:2] = [64, 64]
    page.load(tome_workflow)
    page.script(f"{STEPS} = 10;")
    page.settle()
    page.script(LESS_WORK)
    before = graph(page)
    open_dialog(page)
    choose(page, "fast")
    press(page, "Insert")
    offer = page.wait(lambda: page.element(".paceline-trial"), "offer to measure")
    assert "Other settings are tried too, for at most the work of 8 pictures." in offer.text
    press(page, "Measure")
    yield before
    page.script("delete app.api.fetchApi")


@pytest.mark.thorough  # draws as long as a search until its first answer
def test_what_a_stopped_search_has_found_can_be_kept_or_undone(page: Page, searching: tuple[set[str], set[Any]]):
    page.wait(lambda: page.text(".paceline-trades"), "first answer", 120)
    press(page, "Cancel")
    page.wait(lambda: "Stopped." in page.text(".paceline-trial"), "end of the search")
    assert "x less work: " in page.text(".paceline-trades") and page.script(f"return {STEPS}") == 10
    idle = "const { queue_running } = await (await fetch('/queue')).json(); return !queue_running.length"
    page.wait(lambda: page.script(idle), "end of the run")
    press(page, "Undo")
    page.settle()
    assert graph(page) == searching and page.script(f"return {STEPS}") == 10


def test_fewer_steps_are_shown_before_they_are_kept_and_undone(page: Page, searching: tuple[set[str], set[Any]]):
    before = searching
    page.wait(lambda: page.text(".paceline-trial-result"), "result", 240)
    page.screenshot("faster_trades")
    trades = page.text(".paceline-trades")
    assert "KSampler: steps 10 → " in trades and "in the worst of 3 pictures" in trades and "x less work: " in trades
    assert page.script(f"return {STEPS}") == 10
    result = page.text(".paceline-trial-result")
    assert result.endswith("x less work") and result in trades
    radio = "[...document.querySelectorAll('.paceline-trades input')].at({}).click()"
    page.script(radio.format(-1))
    assert page.text(".paceline-trial-result") == "Keep the settings as they are"
    page.script(radio.format(0))
    assert page.text(".paceline-trial-result") == result
    saved_card(page, ".paceline-trades")
    press(page, "Keep")
    page.settle()
    assert f"KSampler: steps 10 → {page.script(f'return {STEPS}')}" in trades
    assert page.script(f"return {STEPS}") < 10
    assert page.run() == "success"
    for _ in range(4):  # what was kept, losers of the trial, what was inserted
        page.script("await app.extensionManager.command.execute('Comfy.Undo')")
        page.settle()
        if graph(page) == before and page.script(f"return {STEPS}") == 10:
            break
    assert graph(page) == before and page.script(f"return {STEPS}") == 10


@pytest.mark.thorough  # a whole trial
def test_one_click_with_a_trained_model(page: Page):
    frames: list[tuple[Path, int]] = []

    def look(seconds: float) -> None:
        frames.append((page.screenshot(f"one_click_{len(frames)}"), int(seconds * 1000)))

    page.use(VUE)
    page.build(
        TRAINED
        + """
        const settings = { seed: 42, control_after_generate: "fixed", steps: 20, cfg: 4 };
        Object.assign(settings, { sampler_name: "res_multistep", scheduler: "simple" });
        const sampler = make("KSampler", 680, 0, settings);
        link(loader, 0, sampler, "model");
        sampled(sampler);
        const decode = make("IconDecode", 1010, 0, {});
        link(sampler, 0, decode, "samples");
        link(decode, 0, make("PreviewImage", 1010, 130, {}), "images");
        """
    )
    assert page.run() == "success"
    page.fit()
    page.wait(lambda: page.script("return !document.body.innerText.includes('Loading')"), "picture")
    look(1.5)
    open_dialog(page)
    look(2)
    choose(page, "balanced")
    look(2)
    press(page, "Insert")
    page.wait(lambda: page.element(".paceline-trial"), "offer to measure")
    page.fit()
    look(2)
    press(page, "Measure")
    page.wait(lambda: page.element(".paceline-trial li"), "first finding", 240)
    look(1.5)
    said = page.wait(lambda: page.text(".paceline-trial-result"), "result", 500)
    look(4)
    found = "[...document.querySelectorAll('.paceline-trades strong')].map((row) => row.textContent)"
    trades = page.script(f"return {found}")
    said = trades[0] if trades else said
    page.click_on(lambda: page.element("dialog.paceline-dialog .paceline-primary"), "Keep, or Close")
    page.settle()
    types, _ = graph(page)
    ours = ("x faster", "Reuse Steps", "Apply ToMe", "Set Attention Processor")
    assert any(name in said for name in ours) == any(name.startswith("Paceline") for name in types)
    assert page.run() == "success"
    if PICTURES:
        pictures = [Image.open(path).convert("RGB").resize((1000, 538), Image.Resampling.LANCZOS) for path, _ in frames]
        times = [duration for _, duration in frames]
        target = ROOT / "docs" / "one_click.webp"
        rest = pictures[1:]
        pictures[0].save(target, save_all=True, append_images=rest, duration=times, loop=0, quality=75, method=6)
        assert target.stat().st_size < 1_500_000
