"""The result of Compare Models in its node."""

from __future__ import annotations

import pytest
from browser.page import CANVAS, LEFT, VUE, Page

pytestmark = pytest.mark.usefixtures("quiet_console")


@pytest.fixture(scope="module")
def compared(page: Page, sd15_checkpoint) -> int:
    """A finished comparison; the number of its node."""
    page.use(CANVAS)
    page.load({"nodes": [], "links": [], "version": 0.4, "last_node_id": 0, "last_link_id": 0})
    node = page.script(
        """
        if (!LiteGraph.registered_node_types["PacelineCompareModels"]) return null;
        const make = (type, x, values) => {
          const node = LiteGraph.createNode(type);
          app.graph.add(node);
          node.pos = [x, 100];
          for (const [name, value] of Object.entries(values)) node.widgets.find((w) => w.name === name).value = value;
          return node;
        };
        const link = (from, output, to, input) =>
          from.connect(output, to, to.inputs.findIndex(({ name }) => name === input));
        const loader = make("CheckpointLoaderSimple", 0, { ckpt_name: args[0] });
        const tome = make("PacelineApplyToMe", 400, { method: "merge" });
        const text = make("CLIPTextEncode", 800, { text: "a fox" });
        const latent = make("EmptyLatentImage", 1200, { width: 128, height: 128 });
        const compare = make("PacelineCompareModels", 1600, { steps: 2, runs: 2, warmup_runs: 0 });
        link(loader, 0, tome, "model");
        link(loader, 1, text, "clip");
        link(loader, 0, compare, "model_baseline");
        link(tome, 0, compare, "model_optimized");
        link(text, 0, compare, "positive");
        link(text, 0, compare, "negative");
        link(latent, 0, compare, "latent_image");
        link(loader, 2, compare, "vae");
        return compare.id;
        """,
        sd15_checkpoint.name,
    )
    if node is None:
        pytest.skip("this version of the pack has no Compare Models")
    assert page.run() == "success"
    return node


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("renderer", [CANVAS, VUE])
def test_the_comparison_stands_in_the_node(page: Page, compared: int, renderer: str, theme: str):
    page.use(renderer, theme)
    page.show_node(compared, zoom=0.9)
    slider = page.wait(lambda: page.element(".paceline-slider"), "slider")
    assert slider.is_displayed()
    loaded = "return [...args[0].querySelectorAll('img')].every((image) => image.complete && image.naturalWidth > 0)"
    page.wait(lambda: page.script(loaded, slider), "pictures")
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
