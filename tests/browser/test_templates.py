"""The example workflows on ComfyUI's page."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from browser.layout import overlapping
from browser.page import PICTURES, VUE, Page
from browser.thumbnails import thumbnail
from comfy_host.paths import ROOT
from comfy_host.templates import files_of
from made_examples import MADE
from PIL import Image

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
@pytest.mark.parametrize("name", TEMPLATES)
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
        thumbnail(page, workflow).save(FOLDER / f"{name}.jpg", quality=82)


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
