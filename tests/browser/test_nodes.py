"""Every node of ours on ComfyUI's page: found by the search, connected, explained, translated."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from browser.page import ESCAPE, PICTURES, VUE, Page
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


@pytest.fixture(scope="module")
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
@pytest.mark.parametrize("language", often(["en", FROM_RIGHT_TO_LEFT], ["en", *languages()]))
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
