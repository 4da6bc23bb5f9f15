"""The example workflows on ComfyUI's page."""

from __future__ import annotations

import io
import json
import textwrap
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from browser.layout import overlapping
from browser.page import PICTURES, VUE, Page
from cases import often
from comfy_host.paths import ROOT
from comfy_host.templates import files_of
from made_examples import MADE, NOTE_TITLE
from PIL import Image, ImageDraw, ImageFont

SIDE, MARGIN, GAP = 640, 36, 20
BELOW_LABEL = 96
"""Where the title begins: the frontend lays a label over the card's upper left corner."""
LINE, LETTERS = 52, 26
MOST_NODES = 2
ROOM = 640
"""Pixels that the page has for a node between its own buttons."""
OPEN = "const node = app.graph.getNodeById(args[0]); app.canvas.openSubgraph(node.subgraph, node)"
"""Script that shows what is inside of a subgraph node."""
BACKGROUND, INK = "#17181b", "#f4f4f5"


def thumbnail(page: Page, workflow: dict[str, Any]) -> Image.Image:
    """Return the card of the open workflow, which is shown in Nodes 2.0."""
    notes = [node for node in workflow["nodes"] if node["type"] == "MarkdownNote"]
    note = next((node for node in notes if node.get("title") == NOTE_TITLE), notes[0])
    title = note["widgets_values"][0].splitlines()[0].removeprefix("## ")
    subgraphs = {graph["id"]: graph for graph in workflow.get("definitions", {}).get("subgraphs", ())}
    outer = next((node for node in workflow["nodes"] if node["type"] in subgraphs), None)
    nodes = workflow["nodes"] if outer is None else subgraphs[outer["type"]]["nodes"]
    if outer is not None:
        page.script(OPEN, outer["id"])
    ours = [node for node in nodes if node["type"].startswith("Paceline")]
    telling = [node for node in ours if node["type"] != "PacelineOptimizationReport"]
    measuring = [node for node in telling if node["type"] in ("PacelineCompareModels", "PacelineBenchmarkSweep")]
    chosen = measuring or telling or [node for node in workflow["nodes"] if node["type"] == "KSampler"]
    different = list({node["type"]: node for node in chosen}.values())
    made = card(title, [node_picture(page, node["id"]) for node in different[-MOST_NODES:]])
    page.script("app.canvas.setGraph(app.rootGraph)")
    return made


def node_picture(page: Page, node_id: int) -> Image.Image:
    """Return a node as it is seen, no larger than what stands in it."""
    page.script(
        """
        const node = app.canvas.graph.getNodeById(args[0]);
        node.showAdvanced = false;
        node.setSize([Math.min(node.size[0], 340), 1]);
        """,
        node_id,
    )
    page.show_node(node_id, zoom=1.0)
    selector = f"[data-node-id='{node_id}']"
    if (height := page.element(selector).rect["height"]) > ROOM:
        page.show_node(node_id, zoom=ROOM / height)
    return Image.open(io.BytesIO(page.element(selector).screenshot_as_png)).convert("RGB")


def card(title: str, pictures: list[Image.Image]) -> Image.Image:
    """Return a title above pictures that are as large as they fit, in a row or one below the other."""
    made = Image.new("RGB", (SIDE, SIDE), BACKGROUND)
    font = ImageFont.load_default(44)
    lines = textwrap.wrap(title, LETTERS)
    for number, line in enumerate(lines):
        ImageDraw.Draw(made).text((MARGIN, BELOW_LABEL + number * LINE), line, INK, font)
    top = BELOW_LABEL + len(lines) * LINE + GAP
    room = SIDE - 2 * MARGIN, SIDE - top - MARGIN
    widths, heights = zip(*(picture.size for picture in pictures), strict=True)
    between = GAP * (len(pictures) - 1)
    row = min((room[0] - between) / sum(widths), room[1] / max(heights))
    column = min(room[0] / max(widths), (room[1] - between) / sum(heights))
    scale = max(row, column)
    x, y = MARGIN, top
    for picture in pictures:
        size = round(picture.width * scale), round(picture.height * scale)
        made.paste(picture.resize(size, Image.Resampling.LANCZOS), (x, y))
        x, y = (x + size[0] + GAP, y) if row >= column else (x, y + size[1] + GAP)
    return made


if TYPE_CHECKING:
    from comfy_host.server import ComfyServer

pytestmark = pytest.mark.usefixtures("quiet_console")

FOLDER = ROOT / "example_workflows"
TEMPLATES = sorted(path.stem for path in FOLDER.glob("*.json"))
LOAD = """
const answer = await app.api.fetchApi(`/workflow_templates/paceline/${encodeURIComponent(args[0])}.json`);
await app.loadGraphData(await answer.json(), true, true, args[0]);
"""


def types(name: str) -> list[str]:
    saved = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return sorted(node["type"] for node in saved["nodes"])


def model_files() -> set[tuple[str, str]]:
    """Folder and name of every file that the examples offer to download."""
    saved = [json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")]
    return {file for workflow in saved for file in files_of(workflow)}


def shown(page: Page) -> list[str]:
    return sorted(node["type"] for node in page.workflow()["nodes"])


@pytest.fixture(scope="module")
def complete(page: Page, server: ComfyServer, sd15_checkpoint: Path) -> Iterator[None]:
    """Every file that the examples name is there, by name: nothing is missing."""
    files = model_files()
    assert ("checkpoints", "sd_xl_base_1.0.safetensors") in files
    for folder, name in files:
        server.add_model(folder, sd15_checkpoint, name)
    Image.new("RGB", (64, 64), "gray").save(server.input_dir / "example.png")
    page.script("await app.refreshComboInNodes()")
    yield
    for folder, name in files:
        (server.base_directory / "models" / folder / name).unlink()
    page.script("await app.refreshComboInNodes()")


@pytest.mark.usefixtures("complete")
@pytest.mark.parametrize("name", often(TEMPLATES[::5], TEMPLATES))
def test_a_template_opens(page: Page, name: str):
    page.use(VUE)
    page.script(LOAD, name)
    page.wait(lambda: shown(page) == types(name), "template")
    page.dismiss()
    page.fit()
    page.screenshot(f"template_{name}")
    # Every value is where it belongs: the frontend marks what a list does not offer, and files are what is missing.
    wrong = page.script(
        """
        const files = /safetensors|png/;
        return app.graph.nodes.flatMap((node) => (node.widgets ?? []).filter((w) => w.type === "combo"
          && Array.isArray(w.options?.values) && !w.options.values.includes(w.value) && !files.test(w.value))
          .map((w) => `${node.type}.${w.name}: ${w.value}`));
        """
    )
    assert wrong == []
    # In neither renderer a node covers another; in ComfyUI's own templates some do.
    assert name in MADE or overlapping(page) == []
    if PICTURES:
        workflow = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        page.setting("Paceline.Badges", False)  # they tell of this machine
        thumbnail(page, workflow).save(FOLDER / f"{name}.jpg", quality=82)
        page.setting("Paceline.Badges", True)


def test_the_templates_browser_offers_them_with_their_pictures(page: Page):
    with urllib.request.urlopen(f"{page.base_url}/api/workflow_templates", timeout=30) as answer:
        assert sorted(json.load(answer)["paceline"]) == TEMPLATES
    page.script("await app.extensionManager.command.execute('Comfy.BrowseTemplates')")
    source = "//*[@role='dialog']//*[not(*) and normalize-space()='Paceline']"
    page.click_on(lambda: next(iter(page.driver.find_elements("xpath", source)), None), "our templates")
    title = "//*[@role='dialog']//*[not(*) and normalize-space()='Image to image with one node']"
    page.wait(lambda: page.driver.find_elements("xpath", title), "cards")
    page.settle()
    page.screenshot("templates")
    for name in TEMPLATES:
        picture = f"{page.base_url}/api/workflow_templates/paceline/{quote(name)}.jpg"
        with urllib.request.urlopen(picture, timeout=30) as answer:
            assert answer.headers["Content-Type"] == "image/jpeg"
    page.click_on(lambda: page.driver.find_element("xpath", title), "card")
    page.wait(lambda: shown(page) == types("Image to image with one node"), "template")
    page.dismiss()
