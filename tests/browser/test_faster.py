""" "Make this workflow faster": what is expected, the run, the answer, the proof, what is kept, and one undo."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser.layout import outside, overlapping
from browser.page import CANVAS, PICTURES, VUE, Page
from cases import often
from comfy_host.paths import ROOT
from PIL import Image

from .graphs import TRAINED

if TYPE_CHECKING:
    from comfy_host.server import ComfyServer

SAMPLED = (
    TRAINED
    + """
for (const side of ["width", "height"]) latent.widgets.find(({ name }) => name === side).value = args[1] ?? 32;
const settings = { seed: 42, control_after_generate: "fixed", cfg: 3, sampler_name: "dpmpp_2m", scheduler: "karras" };
const sampler = make("KSampler", 680, 0, { ...settings, steps: args[0] });
link(loader, 0, sampler, "model");
sampled(sampler);
const decode = make("IconDecode", 1010, 0, {});
link(sampler, 0, decode, "samples");
link(decode, 0, make("PreviewImage", 1010, 170, {}), "images");
"""
)
"""Script that draws a picture with the small trained model, in so many steps, and of so many pixels a side (32)."""


def open_dialog(page: Page) -> Any:
    page.script("app.extensionManager.command.execute('Paceline.MakeFaster')")
    return page.wait(lambda: page.element("dialog.paceline-dialog .paceline-faster"), "dialog")


def press(page: Page, label: str) -> None:
    page.click(label, "dialog.paceline-dialog")


def choose(page: Page, name: str) -> None:
    page.click_on(lambda: page.element(f"dialog input[value={name}]"), f"choice {name}")


def said(page: Page) -> str:
    """Return what the dialog says in its lines."""
    return page.text(".paceline-faster ul")


def offer(page: Page, seconds: float = 120) -> str:
    """Wait for the answer, and return its offer."""
    return page.wait(lambda: page.text(".paceline-offer"), "offer", seconds)


def graph(page: Page) -> tuple[set[str], set[tuple[Any, ...]]]:
    """Return the types of the nodes, and what is wired to what."""
    saved = page.workflow()
    types = {node["id"]: node["type"] for node in saved["nodes"]}
    return set(types.values()), {(types[link[1]], link[2], types[link[3]], link[4]) for link in saved["links"]}


pytestmark = pytest.mark.usefixtures("quiet_console")

CHIP = """
const sampler = app.graph.nodes.find((node) => node.type === "KSampler");
return sampler?.widgets?.find(({ name }) => name === "$$paceline-chip")?.element.firstChild?.textContent ?? "";
"""
IDLE = "const { queue_running } = await (await fetch('/queue')).json(); return !queue_running.length"


@pytest.fixture(autouse=True)
def no_run_is_kept(page: Page) -> None:
    page.script("await fetch('/paceline/outcomes', { method: 'DELETE' })")


def undo(page: Page) -> None:
    page.script("await app.extensionManager.command.execute('Comfy.Undo')")
    page.settle()


@pytest.mark.parametrize("renderer", often([VUE], [CANVAS, VUE]))  # what follows is in the canvas
def test_from_what_is_expected_to_the_run_that_tests_it(page: Page, renderer: str):
    page.use(renderer)
    page.build(SAMPLED, 20)  # of a shorter run nothing is said, as its messages come together
    before = graph(page)
    open_dialog(page)
    assert "Nothing was measured here yet" in said(page) and "256 MB" in said(page)
    choose(page, "fast")
    page.wait(lambda: "To be tried: Apply ToMe, Reuse Steps" in said(page), "what is looked at")
    page.screenshot(f"faster_expected_{renderer}")
    press(page, "Run once and look")
    best = offer(page)
    assert page.text(".paceline-picture-time").startswith("This run took ")
    assert not page.element("dialog fieldset").is_displayed(), "what is answered takes no room"
    assert "Reuse Steps" in best and "expected " in best and "a seed change at most" in best
    page.screenshot(f"faster_answer_{renderer}")
    page.click_on(lambda: page.element("dialog .paceline-dialog-buttons button:nth-child(2)"), "Prove it")
    measured = page.wait(lambda: page.text(".paceline-measured"), "first pair", 200)
    assert measured.startswith("After 1 of at most 3 seeds: ") and " less work" in measured
    page.screenshot(f"faster_first_pair_{renderer}")
    page.wait(lambda: page.text(".paceline-measured").startswith("Measured, steps of "), "proof", 200)
    page.screenshot(f"faster_proved_{renderer}")
    press(page, "Keep")
    page.wait(lambda: outside(page) == [], "new nodes in the view")
    types, wires = graph(page)
    assert "PacelineReuseSteps" in types - before[0]
    assert ("PacelineReuseSteps", 0, "KSampler", 0) in wires and overlapping(page) == []
    page.screenshot(f"faster_inserted_{renderer}")
    page.script("app.graph.nodes.find((node) => node.type === 'KSampler').widgets[0].value = 7")
    assert page.run() == "success"
    chip = page.wait(lambda: "expected" in page.script(CHIP) and page.script(CHIP), "test of what was expected")
    assert ", was " in chip or "the machine was busy" in chip
    page.script("await app.extensionManager.command.execute('Workspace.ToggleBottomPanelTab.paceline.speed')")
    page.wait(lambda: "expected" in page.text(".paceline-speed"), "test of what was expected in the tab Speed")
    page.screenshot(f"faster_tested_{renderer}")
    page.script("await app.extensionManager.command.execute('Workspace.ToggleBottomPanelTab.paceline.speed')")
    page.script("app.graph.nodes.find((node) => node.type === 'KSampler').widgets[0].value = 42")
    for _ in range(3):  # a changed seed may be a step of its own
        undo(page)
        if graph(page) == before:
            break
    assert graph(page) == before


def test_the_last_run_is_the_answer_before_any_other(page: Page):
    page.use(CANVAS)
    page.build(SAMPLED, 22)  # no other test draws so many: what comes from the cache is no run to keep
    assert page.run() == "success"
    kept = "return (await (await fetch('/paceline/outcomes')).json()).runs.length"
    page.wait(lambda: page.script(kept), "kept run")
    open_dialog(page)
    time = page.wait(lambda: page.text(".paceline-picture-time"), "time of the last picture")
    assert time.startswith("The last picture took ") and "sampling: KSampler" in time and "Can be tried: " in time
    bar = "return document.querySelectorAll('.paceline-picture-time .paceline-bar-pieces > span').length"
    rows = "return document.querySelectorAll('.paceline-picture-time tr').length"
    assert page.script(bar) == page.script(rows) > 0  # all but the steps may be too brief to be told of
    assert page.text("dialog .paceline-primary") == "Look for more"
    page.screenshot("faster_answer_at_once")
    press(page, "Cancel")
    page.use(CANVAS, "light")
    open_dialog(page)
    page.wait(lambda: page.text(".paceline-picture-time"), "time of the last picture")
    page.screenshot("faster_answer_at_once_light")
    press(page, "Cancel")


def test_it_can_be_stopped_in_each_phase(page: Page):
    page.use(CANVAS)
    page.build(SAMPLED, 100)
    before = graph(page)
    open_dialog(page)
    press(page, "Run once and look")
    page.wait(lambda: "is measured" in page.text("dialog"), "run")
    press(page, "Stop")
    page.wait(lambda: "No sampler finished" in said(page), "end of the run")
    press(page, "Close")
    page.wait(lambda: page.script(IDLE), "end of the run")

    page.build(SAMPLED, 40)
    open_dialog(page)
    choose(page, "fast")
    page.wait(lambda: "To be tried: Apply ToMe, Reuse Steps" in said(page), "what is looked at")
    press(page, "Run once and look")
    page.wait(lambda: "Trying candidates" in page.text("dialog"), "probe", 120)
    press(page, "Stop")
    assert "Reuse Steps" in offer(page)  # of which the run itself tells
    assert "The run was stopped early" in said(page) and "were tried before" not in said(page)
    page.wait(lambda: page.script(IDLE), "end of the probe")
    page.click_on(lambda: page.element("dialog .paceline-dialog-buttons button:nth-child(2)"), "Prove it")
    page.wait(lambda: "the same seeds" in page.text("dialog"), "proof")
    press(page, "Stop")
    assert "Measured" not in offer(page)
    press(page, "Close")
    page.wait(lambda: page.script(IDLE), "end of the proof")
    assert graph(page) == before


SWITCHED = (
    SAMPLED
    + """
const turbo = make("PrimitiveBoolean", 0, 700, { value: false });
const choose = make("ComfySwitchNode", 320, 700, {});
for (const [name, value] of [["on_false", 8], ["on_true", 4]]) {
  link(make("PrimitiveInt", 0, value === 8 ? 800 : 900, { value }), 0, choose, name);
}
link(turbo, 0, choose, "switch");
link(choose, 0, sampler, "steps");
const numbers = app.graph.nodes.filter(({ type }) => type === "PrimitiveInt");
const { subgraph, node: outer } = app.canvas.graph.convertToSubgraph(new Set([turbo, choose, ...numbers]));
const inner = subgraph.nodes.find(({ type }) => type === "PrimitiveBoolean");
subgraph.addInput("enable_turbo_mode", "BOOLEAN").connect(inner.inputs[0], inner);
window.outer = outer;
window.turbo = inner;
"""
)
"""Script that draws in 8 steps, or in 4 with a switch in a subgraph, whose widget is outside."""

LEVER = "dialog .paceline-lever .paceline-button"


def test_a_switch_of_the_workflow_in_a_subgraph_is_turned_to_look(page: Page):
    page.use(CANVAS)
    page.build(SWITCHED, 8)
    page.settle()
    assert page.run() == "success"
    widget = "return window.outer.widgets.find(({ name }) => name === 'enable_turbo_mode').value"
    assert page.script(widget) is False
    open_dialog(page)
    told = "This workflow has a switch: with enable_turbo_mode on it takes 4 steps instead of 8."
    assert told in page.text("dialog .paceline-lever")
    before: set[str] = set()
    for last, kept in (("Back", False), ("Keep", True)):
        page.click_on(lambda: page.element(LEVER), "Switch it on and look")
        pair = page.wait(lambda: page.text("dialog .paceline-pair"), "both pictures", 120)
        shown = page.script("return [...document.querySelectorAll('.paceline-pair img')].map(({ src }) => src)")
        assert len(shown) == 2
        # The second time ComfyUI has all results: nothing is computed, so no seconds are told.
        assert ("after: " in pair) is (last == "Back")
        before.add(shown[0])
        assert before == {shown[0]} and shown[1] not in before, "the other is the picture without it"
        steps = "return (await app.graphToPrompt()).output"
        assert True in [node["inputs"].get("value") for node in page.script(steps).values()]
        page.screenshot(f"faster_lever_{last}")
        press(page, last)
        assert page.script(widget) is kept


def test_a_bypassed_lora_of_few_steps_is_switched_on_to_look(page: Page, server: ComfyServer):
    from safetensors.torch import save_file

    file = server.base_directory / "models" / "loras" / "turbo_4steps.safetensors"
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({}, file)
    page.script("await app.refreshComboInNodes()")
    page.use(CANVAS)
    off = 'const lora = make("LoraLoaderModelOnly", 320, 0, { lora_name: "turbo_4steps.safetensors" });'
    wired = 'link(loader, 0, lora, "model"); link(lora, 0, sampler, "model"); lora.mode = 4; window.lora = lora;'
    page.build(SAMPLED + off + wired + "window.sampler = sampler;", 8)
    page.settle()
    open_dialog(page)
    assert "It is tried with 4 steps and cfg 1." in page.text("dialog .paceline-lever")
    find = "(name) => sampler.widgets.find((one) => one.name === name).value"
    now = f"return [lora.mode, ...['steps', 'cfg'].map({find})]"
    page.click_on(lambda: page.element(LEVER), "Switch it on and look")
    page.wait(lambda: page.text("dialog .paceline-pair"), "both pictures", 120)
    assert page.script(now) == [0, 4, 1]
    press(page, "Back")
    assert page.script(now) == [4, 8, 3]
    press(page, "Cancel")
    file.unlink()


def test_a_video_is_decoded_in_a_single_tile_to_look(page: Page, server: ComfyServer):
    from comfy_host.vaes import wan_state_dict
    from safetensors.torch import save_file

    file = server.base_directory / "models" / "vae" / "video.safetensors"
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(wan_state_dict(), file)
    page.script("await app.refreshComboInNodes()")
    page.use(CANVAS)
    page.build(
        SAMPLED
        + """
        const video = make("EmptyHunyuanLatentVideo", 0, 700, { width: 80, height: 80, length: 9 });
        window.tiles = make("VAEDecodeTiled", 680, 700, { tile_size: 64, temporal_size: 8 });
        link(make("VAELoader", 320, 700, { vae_name: "video.safetensors" }), 0, tiles, "vae");
        link(video, 0, tiles, "samples");
        link(tiles, 0, make("PreviewImage", 1010, 700, {}), "images");
        """,
        8,
    )
    page.settle()
    open_dialog(page)
    press(page, "Run once and look")
    lever = page.wait(lambda: page.text("dialog .paceline-lever"), "answer", 120)
    assert lever.startswith("The VAE computes the overlaps of its tiles twice.")
    find = "(name) => tiles.widgets.find((one) => one.name === name).value"
    sizes = f"return ['tile_size', 'temporal_size'].map({find})"
    for last, kept in (("Back", [64, 8]), ("Keep", [4096, 4096])):
        page.click_on(lambda: page.element(LEVER), "Switch it on and look")
        pair = page.wait(lambda: page.text("dialog .paceline-pair"), "both pictures", 120)
        # The sampler's result is kept, so its seconds are in neither.
        told = pair.count(" s in the nodes that ran again")
        assert told == (2 if last == "Back" else 0) and page.script(sizes) == [4096, 4096]
        page.screenshot(f"faster_tiles_{last}")
        press(page, last)
        assert page.script(sizes) == kept
    file.unlink()


@pytest.mark.thorough  # draws the moving picture of the README
def test_one_click_with_a_trained_model(page: Page):
    frames: list[tuple[Path, int]] = []

    def look(seconds: float) -> None:
        frames.append((page.screenshot(f"one_click_{len(frames)}"), int(seconds * 1000)))

    page.use(VUE)
    if PICTURES:  # a small window: the README shows it in 830 pixels, and its sentences are to be read there
        page.window(1100, 740)
    page.build(SAMPLED, 30)
    assert page.run() == "success"
    if PICTURES:  # again, with nothing to load
        page.script("app.graph.nodes.find((node) => node.type === 'KSampler').widgets[0].value = 43")
        assert page.run() == "success"
    page.fit()
    page.wait(lambda: page.script("return !document.body.innerText.includes('Loading')"), "picture")
    look(1.5)
    open_dialog(page)
    choose(page, "fast")
    page.wait(lambda: "Can be tried" in page.text("dialog"), "where the time went")
    look(2.5)
    press(page, "Look for more")
    page.wait(lambda: "Trying candidates" in page.text("dialog"), "probe", 120)
    look(1.5)
    offer(page)
    look(3.5)
    page.click_on(lambda: page.element("dialog .paceline-dialog-buttons button:nth-child(2)"), "Prove it")
    page.wait(lambda: page.text(".paceline-measured").startswith("Measured"), "proof", 300)
    look(4)
    press(page, "Keep")
    page.settle()
    page.script("app.graph.nodes.find((node) => node.type === 'KSampler').widgets[0].value = 7")
    assert page.run() == "success"
    page.wait(lambda: "expected" in page.script(CHIP), "test of what was expected")
    page.fit()
    look(3.5)
    if PICTURES:
        page.window()
        pictures = [Image.open(path).convert("RGB") for path, _ in frames]
        times = [duration for _, duration in frames]
        target = ROOT / "docs" / "one_click.webp"
        rest = pictures[1:]
        pictures[0].save(target, save_all=True, append_images=rest, duration=times, loop=0, quality=75, method=6)
        assert target.stat().st_size < 1_500_000
