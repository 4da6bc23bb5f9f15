"""Benchmark Sweep in its node: cells as they are measured, a stop, and what a cell is good for."""

from __future__ import annotations

from typing import Any

import pytest
from browser.graphs import EMOJI
from browser.page import CANVAS, PICTURES, VUE, Page, save
from comfy_host.paths import ROOT

pytestmark = pytest.mark.usefixtures("quiet_console")

GRID = "Apply ToMe.method: merge, kv_downsample\nApplyToMe.preset: custom\nApplyToMe.ratio: 0.25, 0.5"
STATE = """
const text = document.querySelector(".paceline-sweep output")?.textContent ?? "";
return { text, points: document.querySelectorAll(".paceline-point").length };
"""


def build(page: Page, **values: Any) -> int:
    """Open a workflow with a sweep of the demo's small trained model; return the number of its node."""
    page.use(VUE)
    return page.build(
        EMOJI
        + """
        const other = make("PacelineModelPrecision", 320, 520, {});
        const settings = { seed: 42, cfg: 2, sampler_name: "dpmpp_2m", scheduler: "karras", steps: 2, runs: args[1] };
        const sweep = make("PacelineBenchmarkSweep", 660, 0, { ...settings, ...args[0] });
        link(loader, 0, sweep, "model");
        link(loader, 0, other, "model");
        sampled(sweep);
        return sweep.id;
        """,
        values,
        9 if PICTURES else 2,
    )


TEXT = "return app.graph.getNodeById(args[0]).widgets.find(({ name }) => name === 'grid').value"
TOTAL = "return document.querySelector('.paceline-grid output').textContent"


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
    from paceline.workbench.sweep import parse_space

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


def test_fewer_steps_stand_beside_the_best_trades(page: Page):
    """A ring at the speed of its cell, right of it where fewer steps would differ more; other cells have none."""
    page.script(PLOT)
    page.screenshot("sweep_control")
    rings = page.script(
        """
        const plot = document.querySelector(".drawn");
        const place = (shape) => ["cx", "cy"].map((name) => Number(shape.getAttribute(name)));
        const shapes = [...plot.querySelectorAll(".paceline-point")].map((point) => {
          const circles = [...point.querySelectorAll("circle")].reverse(); // the ring lies below
          return circles.map(place);
        });
        const said = plot.textContent.includes("fewer steps, in the same time");
        plot.remove();
        return { shapes, said };
        """
    )
    (cell, ring), (near, nearer), (other,) = rings["shapes"]
    assert ring[1] == cell[1] and ring[0] > cell[0]
    assert nearer[1] == near[1] and nearer[0] < near[0]
    assert other[0] > 0 and rings["said"]


PLOT = """
const base = document.querySelector("[href$='results.css']").href;
const { createPlot } = await import(new URL("js/sweep_plot.js", base));
const cell = (label, speedup, difference, control, best) => ({
  label, speedup, difference, control, best, state: "measured", low: speedup - 0.1, high: speedup + 0.1, text: "",
  picture: null, steps: [],
});
const cells = [
  cell("fast", 1.6, 0.2, 0.5, true), cell("balanced", 1.3, 0.1, 0.05, true), cell("slow", 1.1, 0.3, 0.6, false),
];
const plot = createPlot({ cells, limit: 0.25 }, () => {}, () => {});
const panel = Object.assign(document.createElement("div"), { className: "paceline-sweep drawn" });
panel.style = "position: fixed; inset: 80px auto auto 80px; width: 480px; z-index: 9999; background: #222; color: #ddd";
panel.append(plot);
document.body.append(panel);
"""


@pytest.fixture
def sweep(page: Page, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A sweep of four cells that was stopped after the first, looked at, and finished."""

    def stop_and_finish() -> dict[str, Any]:
        node = build(page, grid=GRID, study=f"browser {tmp_path_factory.mktemp('study').name}")
        # Stopped as soon as the plot has the first cell, by the page: a slow test would come too late.
        page.script(
            """
            window.stopped = null;
            app.api.addEventListener("execution_interrupted", () => (window.stopped = true));
            const look = () => document.querySelector(".paceline-point") ? app.api.interrupt() : setTimeout(look, 20);
            await app.queuePrompt(0);
            look();
            """
        )
        page.wait(lambda: page.script("return window.stopped"), "end of the run", 240)
        page.settle()
        page.show_node(node, zoom=0.7)
        page.screenshot("sweep_stopped")
        page.script("document.querySelector('.paceline-grid').dispatchEvent(new PointerEvent('pointerenter'))")
        page.wait(lambda: "about" in page.script(TOTAL), "time that the form knows from the first cell")
        stopped = {**page.script(STATE), "badge": page.badges()[str(node)]}
        assert page.run(seconds=300) == "success"
        return {"node": node, "stopped": stopped}

    return page.once("sweep", stop_and_finish)


@pytest.fixture
def swept(sweep: dict[str, Any]) -> int:
    """The number of the sweep's node."""
    return sweep["node"]


def test_a_stop_says_what_is_kept_and_offers_to_go_on(sweep: dict[str, Any]):
    stopped = sweep["stopped"]
    kept = stopped["points"]
    assert 1 <= kept < 4
    assert stopped["text"].startswith(f"{kept} / 4 cells kept · about ")
    assert f"{kept} of 4 cells kept: run it again to go on" in stopped["badge"]


@pytest.mark.parametrize("renderer", [CANVAS, VUE])
def test_the_plot_has_every_cell_the_plain_model_and_the_limit(page: Page, swept: int, renderer: str, axe):
    page.use(renderer)
    page.show_node(swept, zoom=0.8)
    page.wait(lambda: page.element(".paceline-plot"), "plot")
    page.screenshot(f"sweep_{renderer}")
    if PICTURES and renderer == VUE:
        save(page.picture_of(".paceline-sweep"), ROOT / "docs" / "sweep.png")
    assert page.script(STATE) == {"text": "4 / 4 cells", "points": 4}
    lines = page.script("return ['one', 'limit'].map((n) => document.querySelectorAll(`.paceline-plot-${n}`).length)")
    assert lines == [1, 1]
    assert axe(".paceline-sweep") == []
    best = page.script("return document.querySelectorAll('.paceline-point[data-best=true]').length")
    badge = page.badges()[str(swept)]
    assert (best == 0) == ("no setting is certainly faster" in badge)


def test_the_pointer_shows_a_cells_picture(page: Page, swept: int):
    from selenium.webdriver import ActionChains

    page.use(VUE)
    page.show_node(swept, zoom=0.8)
    labels = set()
    for point in page.driver.find_elements("css selector", ".paceline-point circle"):
        ActionChains(page.driver).move_to_element(point).perform()
        labels.add(page.text(".paceline-cell strong"))
    assert len(labels) == 4
    ready = "const i = document.querySelector('.paceline-cell img'); return i?.complete && i.naturalWidth > 0"
    page.wait(lambda: page.script(ready), "picture of the cell")


def test_what_is_said_of_a_cell_follows_the_language(page: Page, swept: int):
    """The first cell was measured in the run that was stopped, and comes from the file of the study."""
    page.use(VUE)
    page.show_node(swept, zoom=0.8)
    said = """
    return [...document.querySelectorAll(".paceline-point")].map((point) => {
      point.dispatchEvent(new PointerEvent("pointerenter"));
      return document.querySelector(".paceline-cell p").textContent;
    });
    """
    english = page.script(said)
    assert len(english) == 4 and all(" seed" in text for text in english)
    with page.language("es"):
        page.wait(lambda: all(" semilla" in text for text in page.script(said)), "Spanish verdicts")
        assert not any(" seed" in text or "{" in text for text in page.script(said))
        page.screenshot("sweep_es")
    page.wait(lambda: page.script(said) == english, "English verdicts")


def test_a_cell_is_applied_to_the_graph_and_taken_back(page: Page, swept: int):
    page.use(VUE)
    page.show_node(swept, zoom=0.8)
    before = page.workflow()
    page.script("document.querySelector('.paceline-point').dispatchEvent(new MouseEvent('click', { bubbles: true }))")
    button = "[...document.querySelectorAll('.paceline-cell button')].find((b) => b.textContent === args[0])"
    page.script(f"{button}.click()", "Apply to the graph")
    page.settle()
    page.screenshot("sweep_applied")
    added = [node for node in page.workflow()["nodes"] if node["type"] == "PacelineApplyToMe"]
    assert len(added) == 1
    overlaps = page.script(
        """
        const [made] = app.graph.nodes.filter(({ type }) => type === "PacelineApplyToMe");
        const hits = (a, b) => a.pos[0] < b.pos[0] + b.size[0] && b.pos[0] < a.pos[0] + a.size[0]
          && a.pos[1] < b.pos[1] + b.size[1] && b.pos[1] < a.pos[1] + a.size[1];
        const link = (node, input) => {
          const slot = node.inputs.findIndex(({ name }) => name === input);
          return app.graph.getNodeById(node.getInputLink(slot).origin_id).type;
        };
        const of = (type) => app.graph.nodes.find((node) => node.type === type);
        return { hit: app.graph.nodes.filter((node) => node !== made && hits(node, made)).length,
          sweep: link(of("PacelineBenchmarkSweep"), "model"), other: link(of("PacelineModelPrecision"), "model") };
        """
    )
    assert overlaps == {"hit": 0, "sweep": "EmojiModelLoader", "other": "PacelineApplyToMe"}
    page.script("await app.extensionManager.workflow.activeWorkflow.changeTracker.undo()")
    page.settle()
    assert {node["type"] for node in page.workflow()["nodes"]} == {node["type"] for node in before["nodes"]}


def test_a_cell_becomes_a_preset_that_the_menus_show(page: Page, swept: int):
    page.use(VUE)
    page.show_node(swept, zoom=0.8)
    page.wait(lambda: page.element(".paceline-cell button"), "cell")
    button = "[...document.querySelectorAll('.paceline-cell button')].find((b) => b.textContent === args[0])"
    page.script(f"{button}.click()", "Save as preset")
    options = """
      const node = LiteGraph.createNode("PacelineOptimizePreset");
      return (await (await app.api.fetchApi("/object_info/PacelineOptimizePreset")).json()).PacelineOptimizePreset
        .input.required.preset[1].options;
    """
    page.wait(lambda: any(name.startswith("browser ") for name in page.script(options)), "preset in the menu")


def test_it_is_still_there_after_a_reload(page: Page, swept: int):
    page.reload()
    page.wait(lambda: page.script(STATE)["points"] == 4, "plot")
