"""The grid of Benchmark Sweep as a form: boxes and ranges, how many cells, and how long they will take."""

from __future__ import annotations

import pytest
from browser.page import CANVAS, VUE, Page
from browser.sweeps import TOTAL, build

pytestmark = pytest.mark.usefixtures("quiet_console")

TEXT = "return app.graph.getNodeById(args[0]).widgets.find(({ name }) => name === 'grid').value"


@pytest.mark.parametrize("renderer", [CANVAS, VUE])
def test_the_grid_is_a_form(page: Page, renderer: str, axe):
    node = build(page, grid="Apply ToMe.preset: quality, fast\nsize: 512")
    page.use(renderer)
    page.show_node(node, zoom=0.8)
    page.wait(lambda: page.element(".paceline-grid fieldset"), "form")
    page.script("document.querySelector('.paceline-grid').dispatchEvent(new PointerEvent('pointerenter'))")
    assert page.script(TOTAL) == "2 cells · its time is known after the first cell"
    box = "[...document.querySelectorAll('.paceline-grid label')].find((l) => l.textContent === args[0]).firstChild"
    page.script(f"{box}.click()", "balanced")
    assert page.script(TEXT, node) == "Apply ToMe.preset: quality, balanced, fast\nsize: 512\n"
    page.script(f"{box}.click()", "1024")
    page.settle()
    page.screenshot(f"sweep_form_{renderer}")
    assert page.script(TEXT, node) == "Apply ToMe.preset: quality, balanced, fast\nsize: 512, 1024\n"
    assert page.script(TOTAL).startswith("6 cells · ")
    assert axe(".paceline-grid") == []
    assert not any(area.is_displayed() for area in page.driver.find_elements("css selector", "textarea"))
    press = "[...document.querySelectorAll('.paceline-grid button')].find((b) => b.textContent === args[0]).click()"
    page.script(press, "Edit as text")
    page.settle()
    area = page.wait(lambda: page.element(".paceline-grid textarea"), "text")
    area.send_keys("batch: 2")
    assert page.script(TEXT, node).endswith("1024\nbatch: 2")
    page.script(press, "Edit with checkboxes")
    page.script("document.querySelector('.paceline-grid-row > button').click()")
    assert page.script(TEXT, node) == "size: 512, 1024\nbatch: 2\n"
