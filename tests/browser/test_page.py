"""Our settings and our report on ComfyUI's page, and what a screen reader makes of our widgets."""

from __future__ import annotations

import json
import urllib.request
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser.page import CANVAS, ESCAPE, Page

if TYPE_CHECKING:
    from comfy_host.server import ComfyServer

pytestmark = pytest.mark.usefixtures("quiet_console")


def test_the_settings_page_shows_our_settings(page: Page, server: ComfyServer, axe):
    page.script("await app.extensionManager.command.execute('Comfy.ShowSettingsDialog')")
    search = page.wait(lambda: page.element("[role=dialog] input"), "settings")
    search.send_keys("Paceline")
    size = "return document.querySelector('.paceline-cache output')?.textContent"
    page.wait(lambda: page.script(size) not in (None, "…"), "size of the cache")
    page.screenshot("settings")
    assert page.script(size) == "empty"
    assert page.text(".paceline-cache code") == str(compiled(server))
    assert not page.element(".paceline-cache button").is_enabled()
    assert axe(".paceline-cache") == []
    page.press(ESCAPE)
    page.wait(lambda: page.element(".paceline-cache") is None, "end of the settings")
    for method in ("GET", "DELETE"):
        request = urllib.request.Request(f"{page.base_url}/api/paceline/cache", method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.load(answer) == {"bytes": 0, "path": str(compiled(server))}


def compiled(server: ComfyServer) -> Path:
    """Where the server keeps compiled code."""
    return server.base_directory / "user" / "__paceline" / "compiled"


def test_the_report_lists_our_nodes_and_obeys_the_keyboard(page: Page, tome_workflow: dict[str, Any], axe):
    page.use(CANVAS)
    page.load(tome_workflow | {"id": str(uuid.uuid4())})
    labels = page.script("return app.extensionManager.command.commands.map((c) => [c.id, c.label])")
    assert ["Paceline.Report", "Paceline: report"] in labels
    page.script("await app.extensionManager.command.execute('Paceline.Report')")
    dialog = page.wait(lambda: page.element("dialog.paceline-dialog[open]"), "report")
    page.screenshot("report")
    for title in ("Apply ToMe (#4)", "Set Attention Processor (#5)", "Optimization Report (#10)"):
        assert title in dialog.text
    assert "not run yet" in dialog.text
    assert page.driver.switch_to.active_element.text == "Close"
    assert axe("dialog.paceline-dialog") == []
    page.press(ESCAPE)
    page.wait(lambda: page.element("dialog.paceline-dialog") is None, "end of the report")


def test_a_report_in_its_node_has_headings_and_details(page: Page, ran):
    page.use(CANVAS)
    page.load(ran)
    page.wait(lambda: page.element(".paceline-report-text"), "report in the node")
    lines = page.script(
        """
        return [...document.querySelectorAll(".paceline-report-text > *")].map((line) => {
          const { fontWeight, color, paddingLeft } = getComputedStyle(line);
          return [line.dataset.level, line.textContent, Number(fontWeight), color, parseFloat(paddingLeft)];
        });
        """
    )
    by_level = {level: [line[1:] for line in lines if line[0] == level] for level in ("0", "1", "2")}
    assert [text for text, *_ in by_level["0"]][1:] == ["Set Attention Processor", "Apply ToMe"]
    assert any(text.startswith("the run took ") for text, *_ in by_level["1"])
    (title, line, detail) = (by_level[level][0] for level in "012")
    assert title[1] > line[1] and line[2] != detail[2] and title[3] < line[3] < detail[3]
