"""Where the time goes: the tab "Speed", the chip on a sampler, and what Profile shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser.graphs import EMOJI, example
from browser.page import ATTENTION, CANVAS, ESCAPE, PICTURES, SAMPLER, TOME, VUE, Page, save
from comfy_host.paths import ROOT

pytestmark = pytest.mark.usefixtures("quiet_console")

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
        for name, mode, said in (("off", 4, " · off"), ("on", 0, "x against off")):
            page.script(MODE, [TOME, ATTENTION], mode)
            page.script(SEED_AND_STEPS, SAMPLER, next(seeds))
            assert page.run() == "success"
            # What the chip said of an earlier run stands there until then.
            found[name] = page.wait(lambda said=said: (text := chip(page)).endswith(said) and text, "chip")
        return found

    return page.once("timed", draw)


def chip(page: Page) -> str:
    return page.script(CHIP, SAMPLER)


def speed_tab(page: Page) -> Any:
    if page.element(".paceline-speed") is None:
        page.script("await app.extensionManager.command.execute('Workspace.ToggleBottomPanelTab.paceline.speed')")
    return page.wait(lambda: page.element(".paceline-speed"), "tab")


def test_the_chip_says_how_fast_and_against_what(page: Page, timed: dict[str, str]):
    assert timed["off"].split(" · ")[1:] == ["off"] and "it" in timed["off"]
    rate, against = timed["on"].split(" · ")
    # The size may have been drawn before by other tests: then more is known than of one run.
    numbers = against.removeprefix("about ").removesuffix("x against off").split("–")
    assert all(float(factor) > 0 for factor in numbers) and ("it/s" in rate or "s/it" in rate)


def test_a_chip_says_no_more_than_the_runs_before_it_prove(page: Page):
    """Where runs without our nodes differ among themselves by as much, one number would be chance."""
    said = page.script(
        """
        const base = document.querySelector("[href$='results.css']").href;
        const { againstText, wonBackText } = await import(new URL("js/against.js", base));
        const { secondsPerStepOfHalves } = await import(new URL("js/timeline.js", base));
        const steady = [0.30, 0.31, 0.30, 0.29], loaded = [0.30, 0.31, 0.45, 0.44];
        const halves = [[5, 6, 7, 9, 11], [5, 6, 8], [5, 6], [5]];
        return {
          texts: [againstText(steady, 0.2), againstText(steady, 0.295), againstText(loaded, 0.3),
            againstText([0.30, 0.31], 0.2)],
          wonBack: [[steady, 0.2], [steady, 0.295], [loaded, 0.3], [[0.30, 0.31], 0.2], [[], 0.2], [steady, 0.4]].map(
            ([off, seconds]) => wonBackText(off, seconds, 35, 20)),
          halves: halves.map((steps) => secondsPerStepOfHalves({ steps })),
        };
        """
    )
    assert said["texts"] == [
        "1.50x against off", "0.92–1.12x against off", "0.56–2.67x against off", "about 1.5x against off",
    ]  # fmt: skip
    pays = "compiling took 35 s once; runs until the nodes win that back: "
    assert said["wonBack"] == [f"{pays}18", "", "", f"{pays}~17", "", ""]
    assert said["halves"] == [[1, 2], [1, 2], [1], []]


def test_the_report_begins_with_how_fast_each_sampler_was(page: Page, timed: dict[str, str]):
    page.script("await app.extensionManager.command.execute('Paceline.Report')")
    dialog = page.wait(lambda: page.element("dialog.paceline-dialog[open]"), "report")
    assert dialog.text.splitlines()[1:3] == [f"KSampler (#{SAMPLER})", timed["on"]]
    page.press(ESCAPE)
    page.wait(lambda: page.element("dialog.paceline-dialog") is None, "end of the report")


@pytest.mark.parametrize("renderer", [CANVAS, VUE])
def test_the_chip_stands_in_the_sampler(page: Page, timed: dict[str, str], renderer: str):
    page.use(renderer)
    page.show_node(SAMPLER)
    page.screenshot(f"chip_{renderer}")
    assert page.element(".paceline-chip").is_displayed()
    saved = next(node for node in page.workflow()["nodes"] if node["id"] == SAMPLER)
    assert len(saved["widgets_values"]) == 7, "the chip is no value of the sampler"


@pytest.mark.parametrize("renderer", [CANVAS, VUE])
def test_the_chip_is_seen_at_every_zoom(page: Page, timed: dict[str, str], renderer: str):
    page.use(renderer)
    page.show_node(SAMPLER, zoom=1.0)
    assert timed["on"] not in page.drawn()
    for zoom in (0.55, 0.3):
        page.show_node(SAMPLER, zoom=zoom)
        rate = timed["on"].split(" ")[0]
        assert any(text.startswith(rate) for text in page.drawn()), zoom


def test_a_subgraph_says_how_fast_its_sampler_is(page: Page, timed: dict[str, str], seeds: Iterator[int]):
    page.use(CANVAS)
    outer = page.script(
        """
        const { graph } = app.canvas, sampler = graph.getNodeById(args[0]);
        sampler.widgets[0].value = args[1];
        return graph.convertToSubgraph(new Set([sampler])).node.id;
        """,
        SAMPLER,
        next(seeds),
    )
    page.settle()
    assert page.run() == "success"
    page.show_node(outer, zoom=1.0)
    page.wait(lambda: any("against off" in text for text in page.drawn()), "chip on the subgraph")
    page.screenshot("chip_of_a_subgraph")


def test_another_size_is_another_baseline(page: Page, timed: dict[str, str]):
    describe = """
    const base = document.querySelector("[href$='results.css']").href;
    const { describe } = await import(new URL("js/speed_history.js", base));
    const prompt = (width, seed, ours) => ({
      1: { class_type: "CheckpointLoaderSimple", inputs: { ckpt_name: "a" } },
      2: { class_type: "PacelineApplyToMe", inputs: { model: ["1", 0], ratio: 0.5 } },
      3: { class_type: "EmptyLatentImage", inputs: { width } },
      4: { class_type: "KSampler", inputs: { model: [ours ? "2" : "1", 0], latent_image: ["3", 0], seed } },
    });
    const prompts = [prompt(64, 1, false), prompt(64, 2, true), prompt(128, 1, false)];
    // Each of 60 LoRAs has two links to the one before: 2^60 paths. The fifth hangs on the sampler: a circle.
    const lora = (number) => ({ model: [`${number}`, 0], clip: [`${number}`, 1] });
    const loras = Array.from({ length: 60 }, (_, at) => [at + 1, { class_type: "LoraLoader", inputs: lora(at) }]);
    prompts.push(Object.fromEntries([...loras, ["4", { class_type: "KSampler", inputs: lora(60) }]]));
    // A second pass: what it starts from was drawn with our nodes, its own model is without.
    const second = { model: ["5", 0], latent_image: ["4", 0] };
    const removed = { class_type: "PacelineRemoveOptimizations", inputs: { model: ["2", 0] } };
    const twice = { ...prompt(64, 1, true), 5: removed, 6: { class_type: "KSampler", inputs: second } };
    return [...prompts.map((one) => describe(one, "4")), describe(twice, "6")];
    """
    plain, ours, wide, _, again = page.script(describe)
    assert again["techniques"] == 0
    assert plain["key"] == ours["key"] != wide["key"]
    assert (plain["techniques"], ours["techniques"]) == (0, 1)


def test_the_tab_has_a_bar_for_each_run(page: Page, timed: dict[str, str], axe):
    page.use(VUE)
    speed_tab(page)
    page.settle()
    page.screenshot("speed_tab")
    bars = page.driver.find_elements("css selector", ".paceline-speed .paceline-bar")
    assert len(bars) >= 2
    first = "document.querySelector('.paceline-speed .paceline-bar')"
    kinds = page.script(f"return [...{first}.querySelectorAll('li')].map((name) => name.dataset.kind)")
    assert {"samplingRun", "decoding"} <= set(kinds)
    marks = "return document.querySelectorAll('.paceline-bar [data-kind=samplingRun] i').length"
    assert page.script(marks) >= 2 * 3  # where each of four steps ended but the last, in both runs
    assert axe(".paceline-speed") == []


def test_a_profile_is_shown_in_the_node_and_in_the_tab(page: Page, timed: dict[str, str], axe):
    page.use(VUE)
    node = page.build(
        EMOJI
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
    page.script("await app.extensionManager.command.execute('Workspace.ToggleBottomPanelTab.paceline.speed')")
    page.script(
        """
        const runs = JSON.parse(sessionStorage.getItem("paceline.runs"));
        runs.at(-1).parts.at(-1).wonBack = "won back";
        sessionStorage.setItem("paceline.runs", JSON.stringify(runs));
        """
    )
    page.reload()
    page.wait(lambda: page.element(".paceline-profile .paceline-bar"), "profile after the reload")
    speed_tab(page)
    pays = "return [...document.querySelectorAll('.paceline-speed .paceline-bar > p')].map((line) => line.textContent)"
    assert page.wait(lambda: page.script(pays), "when compiling pays") == ["won back"]
    page.script("await app.extensionManager.command.execute('Workspace.ToggleBottomPanelTab.paceline.speed')")


def test_a_missing_baseline_is_measured_at_a_click(page: Page, seeds: Iterator[int], sd15_checkpoint: Path):
    page.use(VUE)
    workflow = example("Text to image - token merging", sd15_checkpoint)
    for node in workflow["nodes"]:
        if node["type"] == "EmptyLatentImage":
            node["widgets_values"][:2] = [192, 128]  # nobody has drawn this size before
    page.load(workflow)
    page.script(SEED_AND_STEPS, SAMPLER, next(seeds))
    with page.slow_connection():
        assert page.run() == "success"
        page.wait(lambda: "no baseline yet" in chip(page), "chip")
        page.show_node(SAMPLER)
        page.screenshot("chip_without_baseline")
        before = page.badges()
        label = "return document.querySelector('.paceline-chip button')?.textContent ?? ''"
        offer = page.wait(lambda: page.script(label), "button")
        assert offer.startswith("measure (about ")
        page.click(offer, ".paceline-chip")
        page.wait(lambda: "against off" in chip(page), "baseline")
    assert page.element(".paceline-chip button") is None
    assert page.badges() == before  # it was no run of the workflow

    # One run does not tell how much runs differ: the chip says "about", and another one can be measured.
    page.script(SEED_AND_STEPS, SAMPLER, next(seeds))
    assert page.run() == "success"
    page.wait(lambda: "· about " in chip(page), "comparison with one run")
    page.screenshot("chip_with_one_run")
    page.click("measure", ".paceline-chip")
    known = re.compile(r".* · [\d.–]+x against off")
    page.wait(lambda: known.fullmatch(chip(page)), "comparison with two runs")


def test_a_run_leaves_no_chip_in_another_workflow_that_is_open_by_now(
    page: Page, ran: dict[str, Any], seeds: Iterator[int]
):
    """Nodes of two workflows have the same numbers."""
    page.script("app.graph.getNodeById(args[0]).widgets[0].value = args[1]", SAMPLER, next(seeds))
    assert page.run() == "success"
    queued = page.workflow()
    messages = """
        const run = JSON.parse(sessionStorage.getItem("paceline.runs")).at(-1).promptId, [sampler] = args;
        const tell = (name, detail) => app.api.dispatchCustomEvent(name, detail);
        tell("execution_start", { prompt_id: run });
        tell("executing", String(sampler));
        for (let value = 1; value <= 3; value++) {
          await new Promise((next) => setTimeout(next, 200));
          tell("progress", { node: String(sampler), value, max: 3, prompt_id: run });
        }
        tell("execution_success", { prompt_id: run });
    """
    page.load({**queued, "id": "22222222-2222-4333-8444-555555555555"})
    page.script(messages, SAMPLER)
    page.settle()
    assert chip(page) == ""
    page.load(queued)
    page.script(messages, SAMPLER)
    page.wait(lambda: "it" in chip(page), "chip of the workflow that is open")
