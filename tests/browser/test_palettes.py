"""Our surfaces in ComfyUI's palettes: as dark or light as the page around them, and readable.

Colours are read off the page: what an element's text is drawn with, and what lies behind it.
"""

from __future__ import annotations

from typing import Any

import pytest
from browser.page import CANVAS, ESCAPE, TOME, VUE, Page
from cases import often

pytestmark = pytest.mark.usefixtures("quiet_console")

PALETTES = often([("dark", "light", "arc")], [("dark", "light", "arc"), ("solarized", "nord", "github")])
"""ComfyUI's; the other half each night."""

READABLE = 4.5
"""The least contrast of text with what is behind it: WCAG 2.2, level AA."""

NEARLY_EQUAL = 2.0
"""The greatest contrast of a surface of ours with the node around it. ComfyUI's own inputs reach 1.9 (arc, light)."""

MEASURE = """
const pixel = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
const rgba = (colour) => {
  pixel.clearRect(0, 0, 1, 1);
  pixel.fillStyle = colour;
  pixel.fillRect(0, 0, 1, 1);
  return [...pixel.getImageData(0, 0, 1, 1).data];
};
const luminance = (colour) => colour.slice(0, 3)
  .map((c) => c / 255)
  .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const contrast = (one, other) => {
  const [a, b] = [luminance(one), luminance(other)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
};
const opaque = (element) => rgba(getComputedStyle(element).backgroundColor)[3] > 200;
const onCanvas = () => rgba(LiteGraph.NODE_DEFAULT_BGCOLOR);
const behind = (element) => {
  for (let at = element; at && at !== document.body; at = at.parentElement) {
    if (at.matches(".dom-widget")) return onCanvas();
    if (opaque(at)) return rgba(getComputedStyle(at).backgroundColor);
  }
  return rgba(getComputedStyle(document.body).backgroundColor);
};
const ours = (element) => [...(element?.classList ?? [])].some((name) => name.startsWith("paceline-"));
const named = (element) => `${element.className} ${JSON.stringify(element.textContent.slice(0, 40))}`;
const outermost = (element) => {
  for (let at = element.parentElement; at; at = at.parentElement) if (ours(at) && opaque(at)) return false;
  return opaque(element) && !element.closest("dialog");
};
const seen = [...document.querySelectorAll("[class*='paceline-']")]
  .filter((element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true }));
const unreadable = {}, patches = {};
let texts = 0, surfaces = 0;
for (const root of seen) {
  if (outermost(root)) {
    surfaces += 1;
    const found = contrast(rgba(getComputedStyle(root).backgroundColor), behind(root.parentElement));
    if (found > args[1]) patches[named(root)] = found;
  }
  for (const element of [root, ...root.querySelectorAll("*")]) {
    const text = [...element.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
    if (!text || element.closest("[disabled], option, .paceline-layer, [aria-hidden=true]")) continue;
    texts += 1;
    const style = getComputedStyle(element);
    const colour = rgba(element instanceof SVGElement ? style.fill : style.color);
    const found = contrast(colour, behind(element));
    if (found < args[0]) unreadable[named(element)] = found;
  }
}
return { texts, surfaces, unreadable, patches };
"""


def looks_right(page: Page, surfaces: int) -> dict[str, float]:
    """Return what is unreadable or stands out in the page that is shown; at least so many surfaces are ours."""
    found = page.script(MEASURE, READABLE, NEARLY_EQUAL)
    assert found["texts"] and found["surfaces"] >= surfaces, found
    return found["unreadable"] | found["patches"]


@pytest.mark.parametrize("palettes", PALETTES)
@pytest.mark.parametrize("renderer", often([CANVAS], [CANVAS, VUE]))
def test_nodes_in_every_palette(page: Page, ran: dict[str, Any], renderer: str, palettes: tuple[str, ...]):
    report = next(node["id"] for node in ran["nodes"] if node["type"] == "PacelineOptimizationReport")
    wrong: dict[str, dict[str, float]] = {}
    for palette in palettes:
        page.use(renderer, palette)
        wrong[palette] = {}
        for node in (TOME, report):
            page.show_node(node, 1.0)
            page.screenshot(f"palette_{renderer}_{palette}_{node}")
            wrong[palette] |= looks_right(page, surfaces=1)
    page.use(CANVAS)
    assert wrong == {palette: {} for palette in palettes}


@pytest.mark.parametrize("palettes", PALETTES)
def test_dialogs_in_every_palette(page: Page, ran: dict[str, Any], palettes: tuple[str, ...]):
    wrong = {}
    for command in ("Paceline.Report", "Paceline.MakeFaster"):
        for palette in palettes:
            page.use(CANVAS, palette)
            page.script("app.extensionManager.command.execute(args[0])", command)
            page.wait(lambda: page.element("dialog.paceline-dialog"), "dialog")
            page.screenshot(f"palette_{command}_{palette}")
            wrong[command, palette] = looks_right(page, surfaces=0)
            page.press(ESCAPE)
            page.wait(lambda: page.element("dialog.paceline-dialog") is None, "end of the dialog")
    page.use(CANVAS)
    assert wrong == dict.fromkeys(wrong, {})
