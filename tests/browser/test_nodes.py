"""Every node of ours on ComfyUI's page: found, connected, explained, translated, as high as what it shows."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from browser.page import ESCAPE, PICTURES, TOME, VUE, Page
from cases import often
from help_pages import RIGHT_TO_LEFT
from update_locales import DOCS, languages, load

pytestmark = pytest.mark.usefixtures("quiet_console")

OFFERS = "[...document.querySelectorAll('[role=option], .p-autocomplete-option, [data-testid*=result]')]"
LOCALE = "return app.extensionManager.setting.get('Comfy.Locale')"
DIRECTION = "return getComputedStyle(document.querySelector('.node-help-content h1')).direction"


FROM_RIGHT_TO_LEFT = "ar"


@pytest.fixture(scope="module")
def nodes(page: Page) -> dict[str, Any]:
    """What the server says about our nodes."""
    with urllib.request.urlopen(f"{page.base_url}/object_info", timeout=60) as answer:
        return {name: info for name, info in json.load(answer).items() if name.startswith("Paceline")}


@pytest.fixture
def english_again(page: Page) -> Iterator[None]:
    yield
    page.speak("en")


TYPED = """
const field = document.activeElement;
if (field.tagName !== "INPUT") return false;
field.value = args[0];  // pasted, because the page searches anew after every key
field.dispatchEvent(new Event("input", { bubbles: true }));
return true;
"""
"""Script: type something into the search."""


def search_for(page: Page, text: str) -> None:
    page.script("await app.extensionManager.command.execute('Workspace.SearchBox.Toggle')")
    page.wait(lambda: page.script(TYPED, text), "search field")


WORDS = (
    "faster", "speed", "slow", "optimize", "sage", "flash", "xformers", "profile", "benchmark", "memory", "vram",
    "teacache", "deepcache",
)  # fmt: skip
"""What people type who do not know our names."""


def test_the_words_that_people_type_find_us(page: Page, nodes: dict[str, Any]):
    page.empty()
    names = [info["display_name"] for info in nodes.values()]
    found = f"return {OFFERS}.some((option) => args[0].some((name) => option.textContent.includes(name)))"
    search_for(page, "zzzzzzzz")
    for word in WORDS:
        page.wait(lambda: not page.script(found, names), "search without results of ours")
        page.script(TYPED, word)
        page.wait(lambda: page.script(found, names), f"node of ours for {word}")
        page.script(TYPED, "zzzzzzzz")
    page.press(ESCAPE)
    page.wait(lambda: page.script("return document.activeElement.tagName !== 'INPUT'"), "end of the search")


@pytest.mark.usefixtures("english_again")
@pytest.mark.parametrize("language", often([FROM_RIGHT_TO_LEFT], ["en", *languages()]))
def test_nodes_and_their_help_speak_the_language_of_the_frontend(page: Page, nodes: dict[str, Any], language: str):
    page.use(VUE)
    if page.script(LOCALE) != language:
        page.setting("Comfy.Locale", language)
        if page.script(LOCALE) != language:
            pytest.skip(f"this frontend has no {language}")
        page.open()
    button = "Make this workflow faster" if language == "en" else load(language)["main"]["paceline"]["faster_title"]
    page.wait(lambda: page.element(f"button[aria-label='{button}']"), "button of the toolbar")
    page.empty()
    shown = page.script(
        """
        return args[0].map((type, i) => {
          const node = LiteGraph.createNode(type);
          node.pos = [600 * (i % 5), 900 * Math.floor(i / 5)];
          app.graph.add(node);
          return [type, node.id, node.title, Object.fromEntries((node.widgets ?? []).map((w) => [w.name, w.label]))];
        });
        """,
        list(nodes),
    )
    page.fit()
    page.screenshot(f"language_{language}")
    for kind, node, title, labels in shown:
        if language == "en":
            expected = nodes[kind]["display_name"]
        else:
            translated = load(language)["nodeDefs"][kind]
            expected = translated["display_name"]
            inputs = translated.get("inputs", {})
            assert {name: labels[name] for name in inputs if name in labels} == {
                name: inputs[name]["name"] for name in inputs if name in labels
            }
        assert title == expected
        if PICTURES and language == "en":  # of the help pages
            page.script("app.canvas.deselectAll()")  # else its corners are those of the frame
            page.show_node(node, zoom=1.0)
            page.element(f"[data-node-id='{node}']").screenshot(str(DOCS / kind / "node.png"))
    kind, node, title, _ = shown[0]
    open_help(page, node, title, f"{language}_{kind}")
    if language in RIGHT_TO_LEFT:
        assert page.script(DIRECTION) == "rtl"


def open_help(page: Page, node: int, title: str, name: str) -> None:
    """Open a node's help from its toolbox."""
    page.show_node(node, zoom=0.5)
    page.click_title(node)
    page.click_on(lambda: page.element("[data-testid=info-button]"), "info button")
    heading = "return document.querySelector('.node-help-content h1')?.textContent.trim()"
    page.wait(lambda: page.script(heading) == title, f"help of {title}")
    page.screenshot(f"help_{name}")


@pytest.mark.usefixtures("ran")
def test_the_canvas_folds_advanced_inputs_and_cuts_no_title(page: Page, tome_workflow: dict[str, Any]):
    """As Nodes 2.0 does by itself. A saved node of which one is not at its default shows all. It has a badge."""
    tome_workflow["nodes"] = [
        node | ({"size": [330, 700]} if node["id"] == TOME else {}) for node in tome_workflow["nodes"]
    ]
    page.load(tome_workflow)  # saved with room for all of them
    page.show_node(TOME, zoom=1.0)
    assert {"Apply ToMe", "Set Attention Processor", "ratio"} <= (drawn := set(page.drawn())) and "sy" not in drawn
    height = "return app.graph.getNodeById(args[0]).size[1]"
    folded = page.script(height, TOME)
    assert folded < 250
    page.script("app.graph.getNodeById(args[0]).toggleAdvanced()", TOME)  # what the entry of the frontend's menu does
    page.load(page.workflow())  # undo and a reload keep them
    page.show_node(TOME, zoom=1.0)
    assert {"ratio", "sx", "sy", "strict"} <= set(page.drawn()) and page.script(height, TOME) > folded
    page.screenshot("advanced_inputs")
    page.script("app.graph.getNodeById(args[0]).toggleAdvanced()", TOME)
    assert "sy" not in page.drawn() and page.script(height, TOME) == folded
    page.script("app.graph.getNodeById(args[0]).widgets.find(({ name }) => name === 'sy').value = 3", TOME)
    page.load(page.workflow())
    page.show_node(TOME, zoom=1.0)
    assert {"sx", "sy"} <= set(page.drawn())
    assert next(node for node in page.workflow()["nodes"] if node["id"] == TOME)["widgets_values"][5] == 3

    report = page.build("return make('PacelineOptimizationReport', 0, 0, {}).id;")
    page.show_node(report, zoom=1.0)
    assert "Optimization Report" in page.drawn()


def test_in_nodes_2_a_node_is_as_high_as_what_it_shows(page: Page):
    page.use(VUE)
    kinds = ("PacelineApplyToMe", "PacelineReuseSteps", "PacelineCompileUNet")
    nodes = page.build("return args[0].map((kind, at) => make(kind, 420 * at, 0, {}).id)", kinds)
    page.show_node(nodes[1], zoom=1.0)
    page.screenshot("heights")
    folded = [page.script(SHOWN, node) for node in nodes]
    assert all(empty < 40 for _, empty in folded)
    page.script(ADVANCED, nodes)
    page.wait(lambda: all(page.script(SHOWN, node)[0] > folded[at][0] + 20 for at, node in enumerate(nodes)), "inputs")
    assert all(page.script(SHOWN, node)[1] < 40 for node in nodes)
    page.script(ADVANCED, nodes)

    def as_before() -> bool:
        return all(abs(page.script(SHOWN, node)[0] - folded[at][0]) < 2 for at, node in enumerate(nodes))

    page.wait(as_before, "height without them")
    page.load(page.workflow())
    page.show_node(nodes[1], zoom=1.0)
    assert as_before()


SHOWN = """
const node = document.querySelector(`[data-node-id="${args[0]}"]`), { bottom, height } = node.getBoundingClientRect();
const rows = [...node.querySelectorAll("button, input, [role=combobox], .paceline-badge")];
return [height, bottom - Math.max(...rows.map((row) => row.getBoundingClientRect().bottom))];
"""
"""Script: how high a node is, and how much of it is empty below what stands in it."""

ADVANCED = """
for (const node of args[0]) {
  const buttons = [...document.querySelectorAll(`[data-node-id="${node}"] button`)];
  buttons.find(({ textContent }) => textContent.includes("advanced")).click();
}
"""
"""Script: show the advanced inputs of nodes, or hide them."""
