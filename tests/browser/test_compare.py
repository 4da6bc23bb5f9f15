"""The result of Compare Models in its node."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser.page import CANVAS, LEFT, PICTURES, VUE, Page
from comfy_host.paths import ROOT
from PIL import Image

pytestmark = pytest.mark.usefixtures("quiet_console")

LOADED = """
const pictures = [...document.querySelectorAll(".paceline-slider img")];
return pictures.length === 2 && pictures.every((picture) => picture.complete && picture.naturalWidth > 0);
"""


@pytest.fixture(scope="module")
def compared(page: Page) -> int:
    """A finished comparison with the demo's small trained model; the number of its node."""
    page.use(VUE)
    page.empty()
    node = page.script(
        """
        const make = (type, x, y, values) => {
          const node = LiteGraph.createNode(type);
          app.graph.add(node);
          node.pos = [x, y];
          for (const [name, value] of Object.entries(values)) node.widgets.find((w) => w.name === name).value = value;
          return node;
        };
        const link = (from, output, to, input) =>
          from.connect(output, to, to.inputs.findIndex(({ name }) => name === input));
        const loader = make("EmojiModelLoader", 0, 0, {});
        const latent = make("EmojiEmptyLatent", 0, 170, {});
        const tome = make("PacelineApplyToMe", 320, 0, { preset: "quality" });
        const attention = make("PacelineSetAttentionProcessor", 640, 0, {});
        const positive = make("EmojiTextEncode", 640, 190, { text: "penguin" });
        const negative = make("EmojiTextEncode", 640, 340, { text: "" });
        const report = make("PacelineOptimizationReport", 320, 500, {});
        const settings = { seed: 42, cfg: 2, sampler_name: "dpmpp_2m", scheduler: "karras", warmup_runs: 1 };
        const compare = make("PacelineCompareModels", 1010, 0, { ...settings, ...args[0] });
        report.setSize([590, 260]);
        link(loader, 0, tome, "model");
        link(tome, 0, attention, "model");
        link(loader, 1, positive, "text_encoder");
        link(loader, 1, negative, "text_encoder");
        link(loader, 0, compare, "model_baseline");
        link(attention, 0, compare, "model_optimized");
        link(positive, 0, compare, "positive");
        link(negative, 0, compare, "negative");
        link(latent, 0, compare, "latent_image");
        link(attention, 0, report, "model");
        link(compare, 1, report, "after");
        return compare.id;
        """,
        {"steps": 20, "runs": 4} if PICTURES else {"steps": 3, "runs": 2},
    )
    assert page.run(seconds=400) == "success"
    return node


def test_the_graph_shows_what_was_done_and_what_it_was_worth(page: Page, compared: int, axe):
    page.use(VUE)
    box = page.fit()
    page.wait(lambda: page.script(LOADED), "pictures")
    page.screenshot("compare_graph")
    said = page.badges()
    assert len(said) == 3  # ToMe, attention, Compare Models
    assert not any(badge.startswith("failed") for badge in said.values())
    assert "active in 3 of 10 self-attention blocks" in page.element(".paceline-report-text").text
    assert axe(".paceline-report") == []
    if PICTURES:
        save(page.picture(box, margin=15, scale=1.6), ROOT / "docs" / "graph.png")
        page.show_node(compared, zoom=1.0)
        place = page.element(".paceline-comparison").rect
        box = place["x"], place["y"], place["width"], place["height"]
        save(page.picture(box, margin=4), ROOT / "docs" / "compare.png")


def save(picture: Image.Image, path: Path) -> None:
    """Save a picture of few colours as a small file."""
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("renderer", [CANVAS, VUE])
def test_the_comparison_stands_in_the_node(page: Page, compared: int, renderer: str, theme: str):
    page.use(renderer, theme)
    page.show_node(compared, zoom=0.9)
    slider = page.wait(lambda: page.element(".paceline-slider"), "slider")
    assert slider.is_displayed()
    page.wait(lambda: page.script(LOADED), "pictures")
    page.screenshot(f"compare_{renderer}_{theme}")
    assert page.element(".paceline-verdict").text
    assert len(page.driver.find_elements("css selector", ".paceline-chart")) == 2
    assert slider.rect["height"] > 100


@pytest.mark.parametrize("renderer", [CANVAS, VUE])
def test_the_slider_obeys_pointer_and_keyboard(page: Page, compared: int, renderer: str, axe):
    from selenium.webdriver import ActionChains

    page.use(renderer)
    page.show_node(compared, zoom=0.9)
    handle = page.wait(lambda: page.element(".paceline-slider-range"), "slider")
    share = "return getComputedStyle(document.querySelector('.paceline-slider')).getPropertyValue('--paceline-share')"
    before = float(page.script(share).rstrip("%"))
    place = "return [...app.canvas.graph.getNodeById(args[0]).pos]"
    node = page.script(place, compared)
    handle.send_keys(LEFT)
    assert float(page.script(share).rstrip("%")) == pytest.approx(before - 5)
    ActionChains(page.driver).move_to_element(handle).click_and_hold().move_by_offset(40, 0).release().perform()
    assert float(page.script(share).rstrip("%")) > 55
    assert page.script(place, compared) == node  # neither the key nor the pointer moved the node
    assert axe(".paceline-comparison") == []
