"""Benchmark Sweep in its node: cells as they are measured, and a stop."""

from __future__ import annotations

from typing import Any

import pytest
from browser.graphs import TRAINED
from browser.page import CANVAS, VUE, Page
from cases import often

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("quiet_console")]

GRID = "Apply ToMe.method = merge\nApply ToMe.preset = custom\nApply ToMe.ratio = 0.25, 0.5, 0.75"
CELLS = 3
ROWS = "return document.querySelectorAll('.paceline-sweep tbody tr').length"


def build(page: Page, **values: Any) -> int:
    """Open a workflow with a sweep of the demo's small trained model; return the number of its node."""
    page.use(VUE)
    return page.build(
        TRAINED
        + """
        const other = make("PacelineModelPrecision", 320, 520, {});
        const rounds = { runs: args[1], most_runs: 0 };
        const settings = { seed: 42, cfg: 2, sampler_name: "dpmpp_2m", scheduler: "karras", steps: 2, ...rounds };
        const sweep = make("PacelineBenchmarkSweep", 660, 0, { ...settings, ...args[0] });
        link(loader, 0, sweep, "model");
        link(loader, 0, other, "model");
        sampled(sweep);
        return sweep.id;
        """,
        values,
        2,
    )


@pytest.fixture
def sweep(page: Page, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A sweep that was stopped after the first, looked at, and finished."""

    def stop_and_finish() -> dict[str, Any]:
        node = build(page, grid=GRID, study=f"browser {tmp_path_factory.mktemp('study').name}")
        # Stopped as soon as the table has the first cell, by the page: a slow test would come too late.
        page.script(
            """
            window.stopped = null;
            app.api.addEventListener("execution_interrupted", () => (window.stopped = true));
            const look = () => document.querySelector(".paceline-sweep tbody tr")
              ? app.api.interrupt() : setTimeout(look, 20);
            await app.queuePrompt(0);
            look();
            """
        )
        page.wait(lambda: page.script("return window.stopped"), "end of the run", 240)
        page.settle()
        page.show_node(node, zoom=0.7)
        page.screenshot("sweep_stopped")
        said = page.text(".paceline-sweep output")
        stopped = {"rows": page.script(ROWS), "badge": page.badges()[str(node)], "said": said}
        assert page.run(seconds=300) == "success"
        return {"node": node, "stopped": stopped}

    return page.once("sweep", stop_and_finish)


def test_a_stop_says_what_is_kept(sweep: dict[str, Any]):
    stopped = sweep["stopped"]
    assert 1 <= stopped["rows"] < CELLS
    assert stopped["said"] == f"{stopped['rows']} / {CELLS} cells"
    assert f"{stopped['rows']} of {CELLS} cells kept: run it again to go on" in stopped["badge"]


@pytest.mark.parametrize("renderer", often([VUE], [CANVAS, VUE]))
def test_the_table_has_every_cell_and_the_command_for_plots(page: Page, sweep: dict[str, Any], renderer: str, axe):
    page.use(renderer)
    page.show_node(sweep["node"], zoom=0.8)
    page.wait(lambda: page.element(".paceline-sweep tbody tr"), "table")
    page.screenshot(f"sweep_{renderer}")
    assert page.script(ROWS) == CELLS
    assert page.text(".paceline-sweep code").startswith('optuna-dashboard "sqlite:///')
    assert axe(".paceline-sweep") == []
