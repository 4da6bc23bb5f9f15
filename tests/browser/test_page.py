"""Our nodes, templates, help, settings, report and translations on ComfyUI's page."""

from __future__ import annotations

import json
import os
import urllib.request
import uuid
from typing import Any

import pytest
from browser.page import CANVAS, ENTER, ESCAPE, VUE, Page
from update_locales import DOCS, languages, load

pytestmark = pytest.mark.usefixtures("quiet_console")


def our_nodes(page: Page) -> dict[str, Any]:
    with urllib.request.urlopen(f"{page.base_url}/object_info", timeout=60) as answer:
        return {name: info for name, info in json.load(answer).items() if name.startswith("Paceline")}


@pytest.mark.parametrize("renderer", [CANVAS, VUE])
def test_every_node_is_found_by_the_search_and_can_be_connected(page: Page, renderer: str):
    from selenium.webdriver import ActionChains

    page.use(renderer)
    page.load({"nodes": [], "links": [], "version": 0.4, "last_node_id": 0, "last_link_id": 0})
    nodes = our_nodes(page)
    assert nodes
    for name, info in nodes.items():
        page.script("await app.extensionManager.command.execute('Workspace.SearchBox.Toggle')")
        field = page.wait(lambda: page.driver.switch_to.active_element, "search")
        page.wait(lambda: page.driver.switch_to.active_element.tag_name == "input", "search field")
        field = page.driver.switch_to.active_element
        field.send_keys(info["display_name"])
        page.wait(
            lambda text=info["display_name"]: page.script(
                "return [...document.querySelectorAll('[role=option], .p-autocomplete-option, [data-testid*=result]')]"
                ".some((option) => option.textContent.includes(args[0]))",
                text,
            ),
            f"result for {info['display_name']}",
        )
        field.send_keys(ENTER)
        page.wait(lambda kind=name: page.script("return app.graph.nodes.some((n) => n.type === args[0])", kind), name)
        # The node hangs on the pointer until a click puts it down.
        ActionChains(page.driver).move_to_element_with_offset(
            page.element("#graph-canvas"), -200, 200
        ).click().perform()
        # Out of the way: the next one is put down at the same place.
        page.script("app.graph.nodes.forEach((node, index) => { node.pos = [9000 + 600 * index, 0]; })")
        page.settle()
    page.script(
        """
        const loader = LiteGraph.createNode("CheckpointLoaderSimple");
        app.graph.add(loader);
        for (const node of app.graph.nodes) {
          const slot = node.inputs.findIndex((input) => input.type === "MODEL");
          if (slot >= 0 && !loader.connect(0, node, slot)) throw new Error(`${node.type} cannot be connected`);
        }
        app.graph.arrange();
        """
    )
    page.fit()
    page.screenshot(f"all_nodes_{renderer}")
    assert page.script("return app.graph.nodes.map((node) => node.type).sort()") == sorted(
        [*nodes, "CheckpointLoaderSimple"]
    )


@pytest.mark.parametrize("language", ["en", "ja"])
def test_the_help_page_of_every_node_opens(page: Page, language: str):
    page.use(VUE)
    page.setting("Comfy.Locale", language)
    try:
        page.open()
        for name, info in our_nodes(page).items():
            expected = info["display_name"] if language == "en" else load(language)["nodeDefs"][name]["display_name"]
            page.load({"nodes": [], "links": [], "version": 0.4, "last_node_id": 0, "last_link_id": 0})
            node = page.script(
                "const node = LiteGraph.createNode(args[0]); app.graph.add(node); return node.id;",
                name,
            )
            page.show_node(node, zoom=1.0)
            if os.environ.get("PACELINE_THUMBNAILS") and language == "en":  # the pictures of the help pages
                page.element(f"[data-node-id='{node}']").screenshot(str(DOCS / name / "node.png"))
            page.show_node(node, zoom=0.5)
            page.click_title(node)
            page.wait(lambda: page.element("[data-testid=info-button]"), "info button").click()
            page.wait(lambda: page.element(".node-help-content h1"), f"help of {name}")
            page.screenshot(f"help_{language}_{name}")
            page.wait(lambda text=expected: page.element(".node-help-content h1").text == text, f"help of {name}")
    finally:
        page.setting("Comfy.Locale", "en")
        page.open()


def test_the_settings_page_shows_our_settings(page: Page):
    page.script("await app.extensionManager.command.execute('Comfy.ShowSettingsDialog')")
    search = page.wait(lambda: page.element("[role=dialog] input"), "settings")
    search.send_keys("Paceline")
    page.wait(lambda: page.element(".paceline-cache output"), "cache")
    page.wait(lambda: page.element(".paceline-cache output").text != "…", "size of the cache")
    page.screenshot("settings")
    assert page.element(".paceline-cache output").text == "empty"
    assert not page.element(".paceline-cache button").is_enabled()
    page.press(ESCAPE)
    page.wait(lambda: page.element(".paceline-cache") is None, "end of the settings")


def test_the_cache_route_describes_and_clears(page: Page):
    for method in ("GET", "DELETE"):
        request = urllib.request.Request(f"{page.base_url}/api/paceline/cache", method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.load(answer) == {"bytes": 0, "entries": 0}


def test_new_nodes_begin_with_the_preset_of_the_settings(page: Page, tome_workflow: dict[str, Any]):
    preset = "return LiteGraph.createNode('PacelineApplyToMe').widgets.find((w) => w.name === 'preset').value"
    assert page.script(preset) == "custom"
    page.setting("Paceline.DefaultPreset", "fast")
    try:
        assert page.script(preset) == "fast"
        page.load(tome_workflow)  # a saved node keeps its own
        assert page.script("return app.graph.getNodeById(4).widgets[0].value") == "custom"
    finally:
        page.setting("Paceline.DefaultPreset", "node")


def test_the_report_lists_our_nodes_and_obeys_the_keyboard(page: Page, tome_workflow: dict[str, Any], axe):
    page.use(CANVAS)
    page.load(tome_workflow | {"id": str(uuid.uuid4())})
    page.script("await app.extensionManager.command.execute('Paceline.Report')")
    dialog = page.wait(lambda: page.element("dialog.paceline-dialog[open]"), "report")
    page.screenshot("report")
    for title in ("Apply ToMe (#4)", "Set Attention Processor (#5)", "Optimization Report (#10)"):
        assert title in dialog.text
    assert "not run since the page was loaded" in dialog.text
    assert page.driver.switch_to.active_element.text == "Close"
    assert axe("dialog.paceline-dialog") == []
    page.press(ESCAPE)
    assert page.element("dialog.paceline-dialog") is None


def test_the_report_is_in_the_menu(page: Page):
    labels = page.script("return app.extensionManager.command.commands.map((c) => [c.id, c.label])")
    assert ["Paceline.Report", "Paceline: report"] in labels


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_our_widgets_are_accessible(page: Page, tome_workflow: dict[str, Any], axe, theme: str):
    page.use(VUE, theme)
    page.load(tome_workflow)
    if not page.badges():
        assert page.run() == "success"
    page.show_node(4)
    assert axe(".paceline-badge-row") == []


@pytest.mark.parametrize("language", languages())
def test_nodes_speak_the_language_of_the_frontend(page: Page, language: str):
    page.setting("Comfy.Locale", language)
    try:
        if page.script("return app.extensionManager.setting.get('Comfy.Locale')") != language:
            pytest.skip(f"this frontend has no {language}")
        page.open()
        expected = load(language)["nodeDefs"]["PacelineApplyToMe"]
        page.load({"nodes": [], "links": [], "version": 0.4, "last_node_id": 0, "last_link_id": 0})
        title, label = page.script(
            "const node = LiteGraph.createNode('PacelineApplyToMe'); app.graph.add(node);"
            "return [node.title, node.widgets.find((widget) => widget.name === 'ratio').label]"
        )
        page.settle()
        page.screenshot(f"language_{language}")
        assert title == expected["display_name"]
        assert label == expected["inputs"]["ratio"]["name"]
    finally:
        page.setting("Comfy.Locale", "en")
        page.open()


def test_a_preset_can_be_turned_into_single_nodes(page: Page, tome_workflow: dict[str, Any]):
    page.use(CANVAS)
    page.load(tome_workflow)
    made = page.script(
        """
        if (!LiteGraph.registered_node_types["PacelineOptimizePreset"]) return null;
        const [loader, tome, attention, sampler] = [2, 4, 5, 8].map((id) => app.graph.getNodeById(id));
        const preset = LiteGraph.createNode("PacelineOptimizePreset");
        app.graph.add(preset);
        preset.widgets[0].value = "fast";
        app.graph.remove(tome);
        app.graph.remove(attention);
        app.graph.remove(app.graph.getNodeById(10));
        loader.connect(0, preset, 0);
        preset.connect(0, sampler, 0);
        return preset.id;
        """
    )
    if made is None:
        pytest.skip("this version of the pack has no Optimize (Preset)")
    menu = "app.collectNodeMenuItems(app.graph.getNodeById(args[0])).find((item) => item?.content?.startsWith('Turn'))"
    assert page.script(f"return {menu}.disabled", made)
    assert page.run() == "success"
    page.script(f"{menu}.callback()", made)
    page.settle()
    page.screenshot("expanded")
    chain = page.script(
        """
        const types = [];
        let node = app.graph.getNodeById(8);
        while (node) {
          types.push(node.type);
          const link = node.inputs[0]?.link;
          node = link == null ? null : app.graph.getNodeById(app.graph.links.get(link).origin_id);
        }
        return types;
        """
    )
    assert chain[0] == "KSampler"
    assert chain[-1] == "CheckpointLoaderSimple"
    assert len(chain) > 2
    assert "PacelineOptimizePreset" not in chain
    assert all(kind.startswith("Paceline") for kind in chain[1:-1])
    assert page.run() == "success"
