""" "Make this workflow faster": what it inserts, that one undo takes it back, and the measured trial."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from browser.graphs import EMOJI, example
from browser.layout import outside, overlapping
from browser.page import CANVAS, PICTURES, VUE, Page
from comfy_host.paths import ROOT
from faster import PROMPT
from PIL import Image

pytestmark = pytest.mark.usefixtures("quiet_console")


@pytest.fixture
def baseline(page: Page, sd15_checkpoint: Path) -> dict[str, Any]:
    """A workflow without our nodes, open in the canvas renderer."""
    workflow = example("Text to image - without Paceline", sd15_checkpoint)
    workflow["nodes"] = [node for node in workflow["nodes"] if not node["type"].startswith("Paceline")]
    page.use(CANVAS)
    page.load(workflow)
    return workflow


def open_dialog(page: Page) -> Any:
    page.script("app.extensionManager.command.execute('Paceline.MakeFaster')")
    return page.wait(lambda: page.element("dialog.paceline-dialog .paceline-faster"), "dialog")


def press(page: Page, label: str) -> None:
    page.click(label, "dialog.paceline-dialog")


def choose(page: Page, name: str) -> None:
    page.click_on(lambda: page.element(f"dialog input[value={name}]"), f"choice {name}")


def graph(page: Page) -> tuple[set[str], set[tuple[Any, ...]]]:
    """Return the types of the nodes, and what is wired to what."""
    saved = page.workflow()
    types = {node["id"]: node["type"] for node in saved["nodes"]}
    return set(types.values()), {(types[link[1]], link[2], types[link[3]], link[4]) for link in saved["links"]}


@pytest.mark.parametrize("renderer", [CANVAS, VUE])
def test_one_click_inserts_and_one_undo_takes_it_back(page: Page, baseline: dict[str, Any], renderer: str):
    page.use(renderer)
    before = graph(page)
    page.show_node(next(node["id"] for node in baseline["nodes"] if node["type"] == "SaveImage"))
    dialog = open_dialog(page)
    assert "Set Attention Processor" in dialog.text and "Apply ToMe" in dialog.text
    assert "Reuse Steps is left out: of so few steps (1) each changes the picture too much." in dialog.text
    page.screenshot(f"faster_dialog_{renderer}")
    choose(page, "lossless")
    assert "Apply ToMe" not in page.text(".paceline-faster ul")
    choose(page, "fast")
    press(page, "Insert")
    page.wait(lambda: page.element(".paceline-trial"), "offer to measure")
    press(page, "Not now")
    page.wait(lambda: outside(page) == [], "new nodes in the view")
    page.screenshot(f"faster_in_view_{renderer}")
    types, wires = graph(page)
    assert types - before[0] == {"PacelineApplyToMe", "PacelineSetAttentionProcessor"}
    assert ("CheckpointLoaderSimple", 0, "PacelineApplyToMe", 0) in wires
    assert ("PacelineSetAttentionProcessor", 0, "KSampler", 0) in wires
    assert ("CheckpointLoaderSimple", 0, "KSampler", 0) not in wires
    assert overlapping(page) == []
    page.fit()
    page.screenshot(f"faster_inserted_{renderer}")
    page.script("await app.extensionManager.command.execute('Comfy.Undo')")
    page.settle()
    assert graph(page) == before


def test_what_is_there_already_is_not_inserted_twice(page: Page, baseline: dict[str, Any]):
    open_dialog(page)
    choose(page, "balanced")
    press(page, "Insert")
    page.wait(lambda: page.element(".paceline-trial"), "offer to measure")
    press(page, "Not now")
    dialog = open_dialog(page)
    choose(page, "balanced")
    assert "there already" in dialog.text
    press(page, "Cancel")


def test_cancelling_a_trial_that_waits_stops_nobody_elses_run(page: Page, baseline, client, sd15_checkpoint: Path):
    prompt = copy.deepcopy(PROMPT)
    prompt["1"]["inputs"]["ckpt_name"] = sd15_checkpoint.name
    prompt["5"]["inputs"] |= {"model": ["1", 0], "steps": 2000}

    def ids(which: str) -> list[str]:
        return [item[1] for item in client.get("/queue")[which]]

    others = client.queue(prompt)
    try:
        page.wait(lambda: ids("queue_running") == [others], "run of somebody else")
        open_dialog(page)
        choose(page, "fast")
        press(page, "Insert")
        page.wait(lambda: page.element(".paceline-trial"), "offer to measure")
        press(page, "Measure")
        page.wait(lambda: ids("queue_pending"), "measurement that waits")
        press(page, "Cancel")
        page.wait(lambda: "Stopped. What was not" in page.element("dialog.paceline-dialog").text, "end")
        page.wait(lambda: not ids("queue_pending"), "empty queue")
        page.settle()
        assert ids("queue_running") == [others]
    finally:
        client.post("/interrupt", {"prompt_id": others})
    press(page, "Undo")
    page.wait(lambda: not ids("queue_running"), "end of the run of somebody else")


def test_what_a_trial_has_found_is_said_in_the_language_of_the_page(page: Page, baseline: dict[str, Any]):
    page.script(
        """
        const base = document.querySelector("[href$='results.css']").href;
        const { remember } = await import(new URL("js/trial_memory.js", base));
        const { openPrompt } = await import(new URL("js/prompt.js", base));
        const sampler = app.graph.nodes.find((node) => node.type === "KSampler");
        const wire = { name: "model", prefix: "", receivers: [{ node: sampler }] };
        const best = { speedup: 1.624, quality: "visible", seed_share: 0.07 };
        const outcome = { judged: [], best, once: 30.2, saves: 5.1 };
        await remember(await openPrompt(), { wire, steps: [], nodes: [] }, "lossless", outcome);
        """
    )
    said = {
        "en": "1.62x faster, difference 1/14 of a seed change, compiling took 30 s once and pays off after 6 images",
        "es": "1,62x más rápido, diferencia: 1/14 de un cambio de semilla, compilar tardó 30 s una vez y se amortiza",
    }
    try:
        for language, sentence in said.items():
            with page.language(language):
                dialog = open_dialog(page)
                choose(page, "lossless")
                assert sentence in dialog.text
                page.screenshot(f"faster_known_{language}")
                press(page, {"en": "Cancel", "es": "Cancelar"}[language])
    finally:
        page.script("await app.api.storeSetting('Paceline.Trials', {})")


def test_foreign_nodes_become_ours_and_subgraphs_are_looked_into(page: Page, baseline: dict[str, Any]):
    workflow = copy.deepcopy(baseline)
    page.load(workflow)
    page.script(
        """
        const { graph } = app.canvas, sampler = graph.getNodeById(args[0]);
        const foreign = LiteGraph.createNode("TomePatchModel");
        graph.add(foreign);
        foreign.pos = [0, -400];
        graph.getNodeById(args[1]).connect(0, foreign, 0);
        foreign.connect(0, sampler, 0);
        window.outer = graph.convertToSubgraph(new Set([sampler])).node.id;
        """,
        *(
            next(node["id"] for node in workflow["nodes"] if node["type"] == name)
            for name in ("KSampler", "CheckpointLoaderSimple")
        ),
    )
    page.settle()
    open_dialog(page)
    choose(page, "lossless")
    press(page, "Insert")
    page.wait(lambda: page.element(".paceline-trial"), "offer to measure")
    press(page, "Not now")
    inside = page.script(
        """
        const { subgraph } = app.graph.getNodeById(window.outer);
        const sampler = subgraph.nodes.find((node) => node.type === "KSampler");
        const link = sampler.getInputLink(0);
        return subgraph.getNodeById(link.origin_id).type;
        """
    )
    assert inside == "PacelineSetAttentionProcessor"
    prompt = page.script("return (await app.graphToPrompt()).output")
    types = {node["class_type"]: node for node in prompt.values()}
    link = types["PacelineSetAttentionProcessor"]["inputs"]["model"]
    assert prompt[link[0]]["class_type"] == "PacelineApplyToMe"
    assert prompt[link[0]]["inputs"]["method"] == "merge"


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


def test_fewer_steps_are_shown_before_they_are_kept_and_undone(page: Page, baseline: dict[str, Any]):
    """Random weights change a latent so little that fewer steps end where all of them do."""
    steps = "app.graph.nodes.find((node) => node.type === 'KSampler').widgets.find((widget) => widget.name === 'steps')"
    page.script(f"{steps}.value = 20;")
    page.settle()
    before = graph(page)
    open_dialog(page)
    choose(page, "fast")
    press(page, "Insert")
    offer = page.wait(lambda: page.element(".paceline-trial"), "offer to measure")
    assert "Other settings are tried too, for at most the work of 24 pictures." in offer.text
    press(page, "Measure")
    page.wait(lambda: page.text(".paceline-trial-result"), "result", 500)
    page.screenshot("faster_trades")
    trades = page.text(".paceline-trades")
    assert "KSampler: steps 20 → " in trades and "in the worst of 3 pictures" in trades and "x less work: " in trades
    assert page.script(f"return {steps}.value") == 20
    press(page, "Keep")
    page.settle()
    assert f"KSampler: steps 20 → {page.script(f'return {steps}.value')}" in trades
    assert page.script(f"return {steps}.value") < 20
    assert page.run() == "success"
    for _ in range(4):  # what was kept, losers of the trial, what was inserted
        page.script("await app.extensionManager.command.execute('Comfy.Undo')")
        page.settle()
        if graph(page) == before and page.script(f"return {steps}.value") == 20:
            break
    assert graph(page) == before and page.script(f"return {steps}.value") == 20


@pytest.mark.thorough  # a whole trial
def test_one_click_with_a_trained_model(page: Page):
    frames: list[tuple[Path, int]] = []

    def look(seconds: float) -> None:
        frames.append((page.screenshot(f"one_click_{len(frames)}"), int(seconds * 1000)))

    page.use(VUE)
    page.build(
        EMOJI
        + """
        const settings = { seed: 42, control_after_generate: "fixed", steps: 30, cfg: 2, sampler_name: "euler" };
        const sampler = make("KSampler", 680, 0, settings);
        link(loader, 0, sampler, "model");
        sampled(sampler);
        const decode = make("EmojiDecode", 1010, 0, {});
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
    choose(page, "fast")
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
