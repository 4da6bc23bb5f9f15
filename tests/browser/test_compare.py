"""The result of Compare Models in its node."""

from __future__ import annotations

from io import BytesIO

import pytest
from browser.page import CANVAS, ESCAPE, LEFT, PICTURES, VUE, Page, save
from cases import often
from comfy_host.paths import ROOT
from PIL import Image

LOADED = """
const pictures = [...document.querySelectorAll(`${args[0] ?? ".paceline-comparison"} .paceline-viewer img`)];
return pictures.length === 2 && pictures.every((picture) => picture.complete && picture.naturalWidth > 0);
"""


def looks_at(page: Page, compared: int, renderer: str, theme: str = "dark") -> None:
    """Show the finished comparison in a renderer."""
    page.use(renderer, theme)
    page.show_node(compared, zoom=0.9)
    page.wait(lambda: page.script(LOADED), "pictures")


pytestmark = pytest.mark.usefixtures("quiet_console")


def test_the_graph_shows_what_was_done_and_what_it_was_worth(page: Page, compared: int, axe):
    page.use(VUE)
    box = page.fit()
    page.wait(lambda: page.script(LOADED), "pictures")
    page.screenshot("compare_graph")
    said = page.badges()
    assert len(said) == 3  # Apply ToMe or Reuse Steps, attention, Compare Models
    assert not any(badge.startswith("failed") for badge in said.values())
    if not PICTURES:
        assert "active in 3 of 10 self-attention blocks" in page.text(".paceline-report-text")
    assert axe(".paceline-report") == []
    if PICTURES:
        page.wait(lambda: page.element(".p-toast-message") is None, "end of what the frontend says")
        save(page.picture(box, margin=15, scale=1.6), ROOT / "docs" / "graph.png")
        page.show_node(compared, zoom=0.9)
        save(page.picture_of(".paceline-comparison"), ROOT / "docs" / "compare.png")


RECTS = """
const rect = (element) => element.getBoundingClientRect().toJSON();
const box = document.querySelector(".paceline-comparison .paceline-viewer-box");
const { naturalWidth, naturalHeight } = box.querySelector("img");
return { box: rect(box), line: rect(box.querySelector(".paceline-viewer-line")), aspect: naturalWidth / naturalHeight };
"""


@pytest.mark.parametrize(
    ("renderer", "theme"), often([(CANVAS, "light")], [(CANVAS, "light"), (VUE, "dark")], several=True)
)
def test_the_comparison_stands_in_the_node(page: Page, compared: int, renderer: str, theme: str):
    # After a reload all inputs are shown, as most_runs is not what it is in a new node.
    fold = "const node = app.canvas.graph.getNodeById(args[0]); node.showAdvanced = false; node.expandToFitContent?.()"
    page.script(fold, compared)
    looks_at(page, compared, renderer, theme)
    page.screenshot(f"compare_{renderer}_{theme}")
    panel = page.element(".paceline-comparison")
    assert page.text(".paceline-verdict")
    assert len(page.driver.find_elements("css selector", ".paceline-rounds-row")) == 3
    assert len(page.driver.find_elements("css selector", ".paceline-rounds-dot")) == 3 * 2
    # Each picture once, and everything in sight without scrolling.
    assert page.script("return app.canvas.graph.getNodeById(args[0]).size[1]", compared) < 1000
    assert page.script("return args[0].scrollHeight - args[0].clientHeight", panel) <= 0
    shown = "[...document.querySelectorAll('[data-node-id] img, .dom-widget img')].filter((i) => i.offsetWidth).length"
    assert page.script(f"return {shown}") == 2
    canvas_preview = "app.canvas.graph.getNodeById(args[0]).widgets.some(({ name }) => name.includes('preview'))"
    assert not page.script(f"return {canvas_preview}", compared)
    # One verdict, one colour: on the badge and in the panel. The button of the plain model has one of its own.
    parts = panel.find_elements("css selector", "[data-state]:not(button)")
    states = {part.get_attribute("data-state") for part in parts}
    assert states == {page.badge(compared).get_attribute("data-state")}


@pytest.mark.parametrize("renderer", often([VUE], [CANVAS, VUE]))
def test_the_slider_is_bound_to_the_picture(page: Page, compared: int, renderer: str, axe):
    from selenium.webdriver import ActionChains

    looks_at(page, compared, renderer)
    handle = page.element(".paceline-viewer-range")
    place = "return [...app.canvas.graph.getNodeById(args[0]).pos]"
    node = page.script(place, compared)
    # It follows the pointer, pressed or not.
    to_the_right = round(page.script(RECTS)["box"]["width"] * 0.31)
    ActionChains(page.driver).move_to_element_with_offset(handle, to_the_right, 0).perform()
    found = page.script(RECTS)
    box, line = found["box"], found["line"]
    assert box["width"] / box["height"] == pytest.approx(found["aspect"], rel=0.01)
    middle = line["left"] + line["width"] / 2
    assert (middle - box["left"]) / box["width"] == pytest.approx(0.81, abs=0.02)
    share = "return getComputedStyle(document.querySelector('.paceline-viewer')).getPropertyValue('--paceline-share')"
    before = float(page.script(share).rstrip("%"))
    handle.send_keys(LEFT)
    assert float(page.script(share).rstrip("%")) == pytest.approx(before - 5)
    ActionChains(page.driver).move_to_element(handle).click_and_hold().move_by_offset(-20, 0).release().perform()
    assert float(page.script(share).rstrip("%")) < 50
    assert page.script(place, compared) == node  # neither the key nor the pointer moved the node
    assert axe(".paceline-comparison") == []


@pytest.mark.parametrize("renderer", often([CANVAS], [CANVAS, VUE]))
def test_wheel_and_buttons_do_what_they_do_on_the_rest_of_the_node(page: Page, compared: int, renderer: str):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.actions.mouse_button import MouseButton
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    looks_at(page, compared, renderer)
    view = "return { scale: app.canvas.ds.scale, offset: [...app.canvas.ds.offset] }"
    element = page.element(".paceline-finding")
    before = page.script(view)
    origin = ScrollOrigin.from_element(element)
    ActionChains(page.driver).scroll_from_origin(origin, 0, -240).perform()
    page.wait(lambda: page.script(view)["scale"] > before["scale"], "zoom")
    page.show_node(compared, zoom=0.9)
    before = page.script(view)
    actions = ActionChains(page.driver).move_to_element(element)
    actions.w3c_actions.pointer_action.pointer_down(button=MouseButton.MIDDLE)
    actions.move_by_offset(60, 30)
    actions.w3c_actions.pointer_action.pointer_up(button=MouseButton.MIDDLE)
    actions.perform()
    page.settle()
    assert page.script(view)["offset"][0] == pytest.approx(before["offset"][0] + 60 / before["scale"], abs=8)
    page.show_node(compared, zoom=0.9)
    ActionChains(page.driver).context_click(page.element(".paceline-finding")).perform()
    menu = """
    const menus = document.querySelectorAll(".litecontextmenu, [role=menu], .p-contextmenu");
    return [...menus].map((menu) => menu.innerText).join("\\n");
    """
    text = page.wait(lambda: "Bypass" in (text := page.script(menu)) and text, "menu")
    page.screenshot(f"compare_menu_{renderer}")
    assert "$$" not in text
    page.press(ESCAPE)
    page.script("document.querySelectorAll('.litecontextmenu').forEach((menu) => menu.remove())")


def test_differences_and_blinking(page: Page, compared: int):
    looks_at(page, compared, VUE)
    try:
        page.click("Difference", ".paceline-comparison")
        label = ".paceline-layer-heat .paceline-viewer-label"
        page.wait(lambda: page.text(label).startswith("Difference ×"), "heat map")
        layers = Image.open(BytesIO(page.element(".paceline-layers").screenshot_as_png)).convert("RGB")
        assert all(low < 20 for low, _ in layers.getextrema()), "black where nothing differs"
        assert layers.getextrema()[0][1] > 80
        page.screenshot("compare_heat")
        page.click("Blink", ".paceline-comparison")
        assert page.script("return document.getAnimations().some((a) => a.animationName === 'paceline-blink')")
    finally:
        page.click("Slider", ".paceline-comparison")


def test_full_screen_zooms_both_pictures_together(page: Page, compared: int, axe):
    looks_at(page, compared, VUE)
    page.click("Full screen", ".paceline-comparison")
    page.wait(lambda: page.element(".paceline-lightbox[open]"), "full screen")
    page.click("Side by side", ".paceline-lightbox")
    page.wait(lambda: page.script(LOADED, ".paceline-lightbox"), "large pictures")
    zoomed = """
      const viewer = document.querySelector(".paceline-lightbox .paceline-viewer");
      const { left, top, width, height } = viewer.querySelector(".paceline-viewer-box").getBoundingClientRect();
      const at = { clientX: left + width / 8, clientY: top + height / 4, bubbles: true, cancelable: true };
      viewer.dispatchEvent(new WheelEvent("wheel", { ...at, deltaY: -400 }));
      viewer.dispatchEvent(new PointerEvent("pointermove", { ...at, buttons: 1, movementX: -30, movementY: -20 }));
      return [...viewer.querySelectorAll("img")].map((image) => getComputedStyle(image).transform);
    """
    left, right = page.script(zoomed)
    page.screenshot("compare_full_screen")
    assert left == right and left.startswith("matrix(2.7")
    assert axe(".paceline-lightbox") == []
    page.press(ESCAPE)
    page.wait(lambda: page.element(".paceline-lightbox") is None, "end of the full screen")
