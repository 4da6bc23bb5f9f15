"""The grid of Benchmark Sweep as a form: boxes and ranges, how many cells, and how long they will take."""

from __future__ import annotations

import pytest
from browser.page import CANVAS, VUE, Page
from browser.sweeps import TOTAL, build

pytestmark = pytest.mark.usefixtures("quiet_console")

TEXT = "return app.graph.getNodeById(args[0]).widgets.find(({ name }) => name === 'grid').value"


def test_the_time_is_foretold_where_the_same_was_sampled_before(page: Page):
    """From what this machine needed for the same with a KSampler, here ten seconds a step."""
    node = build(page, grid="Apply ToMe.preset: quality, fast", warmup_runs=1)
    enter = "document.querySelector('.paceline-grid').dispatchEvent(new PointerEvent('pointerenter'))"
    page.script(enter)
    assert page.script(TOTAL) == "2 cells · its time is known after the first cell"
    page.script(
        """
        const [sampler, sweep] = [LiteGraph.createNode("KSampler"), app.graph.getNodeById(args[0])];
        app.graph.add(sampler);
        const values = { seed: 7, steps: 30, cfg: 2, sampler_name: "dpmpp_2m", scheduler: "karras" };
        for (const widget of sampler.widgets) widget.value = values[widget.name] ?? widget.value;
        const at = (node, name) => node.inputs.findIndex((input) => input.name === name);
        for (const name of ["model", "positive", "negative", "latent_image"]) {
          const { origin_id, origin_slot } = sweep.getInputLink(at(sweep, name));
          app.graph.getNodeById(origin_id).connect(origin_slot, sampler, at(sampler, name));
        }
        app.graph.add(Object.assign(LiteGraph.createNode("PreviewAny"), { title: "end" }));
        sampler.connect(0, app.graph.nodes.at(-1), 0);
        const base = document.querySelector("[href$='results.css']").href;
        const { describe } = await import(new URL("js/speed_history.js", base));
        const { output } = await app.graphToPrompt();
        const { key } = describe(output, String(sampler.id));
        const known = await app.api.getSetting("Paceline.Speeds");
        await app.api.storeSetting("Paceline.Speeds", { ...known, [key]: [10] });
        """,
        node,
    )
    page.script(enter)
    # 2 cells, each 2 steps in 2 runs and a warm-up, of both sides
    page.wait(lambda: page.script(TOTAL) == "2 cells · about 4 min", "time")


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
    add = """
      const select = document.querySelector(".paceline-grid select");
      select.value = args[0];
      select.dispatchEvent(new Event("change"));
    """
    page.script(add, "ApplyToMe.ratio")
    change = """
      const [from, to, count] = document.querySelectorAll(".paceline-grid input[type=number]");
      for (const [input, value] of [[from, 0.25], [to, 0.75]]) input.value = value;
      count.value = 3;
      count.dispatchEvent(new Event("change"));
    """
    page.script(change)
    page.settle()
    page.screenshot(f"sweep_form_{renderer}")
    assert page.script(TEXT, node).endswith("size: 512, 1024\nApplyToMe.ratio: 0.25, 0.5, 0.75\n")
    assert page.script(TOTAL).startswith("18 cells · ")
    assert axe(".paceline-grid") == []
    assert not any(area.is_displayed() for area in page.driver.find_elements("css selector", "textarea"))
    press = "[...document.querySelectorAll('.paceline-grid button')].find((b) => b.textContent === args[0]).click()"
    page.script(press, "Edit as text")
    page.settle()
    area = page.wait(lambda: page.element(".paceline-grid textarea"), "text")
    area.send_keys("batch: 2")
    assert page.script(TEXT, node).endswith("0.75\nbatch: 2")
    page.script(press, "Edit with checkboxes")
    page.script("document.querySelector('.paceline-grid-row > button').click()")
    assert page.script(TEXT, node) == "size: 512, 1024\nApplyToMe.ratio: 0.25, 0.5, 0.75\nbatch: 2\n"


def test_the_form_counts_as_the_server_does(page: Page, comfy):
    from paceline.workbench.sweep.space import parse_space

    grids = ["A.x: 1, 2\nB: on, off\nB.y: 3, 4, 5\nsize: 512, 768", "A: off\nA.x: 1, 2", "A.x: 1", "A.x: 0.2 .. 0.8"]
    counted = page.script(
        """
        const base = document.querySelector("[href$='results.css']").href;
        const { countCells, readRows } = await import(new URL("js/grid_text.js", base));
        return args[0].map((text) => countCells(readRows(text)));
        """,
        grids,
    )
    assert counted == [*(len(parse_space(grid, "").cells()) for grid in grids[:3]), None]
