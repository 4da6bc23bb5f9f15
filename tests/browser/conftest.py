"""The real frontend in a real browser, against a real server."""

from __future__ import annotations

import itertools
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from needs import missing

if TYPE_CHECKING:
    from browser.page import Page
    from comfy_host.server import ComfyServer

HOST_DOES_IT = "sdpa already, so it changes nothing"
"""What Set Attention Processor says here after a run."""

FAILED = pytest.StashKey[bool]()

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "browser: needs Chrome or Chromium, its driver, and selenium")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("browser")
            if os.environ.get("CI"):
                item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember that a test has failed."""
    report = yield
    item.stash[FAILED] = report.failed or item.stash.get(FAILED, False)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Function) -> Iterator[None]:
    """Take another browser after a test that failed: what it has left open, set or running is not of the next one."""
    failed = True
    try:
        yield
        failed = item.stash.get(FAILED, False)
    finally:
        item.stash[FAILED] = False
        page: Page | None = item.funcargs.get("page")
        if failed and page and not page.closed:
            page.restart()


@pytest.fixture(scope="package")  # an open browser draws sixty times a second, beside the tests that come later
def page(server: ComfyServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page of the server. After a test that failed it is in another browser."""
    try:
        from browser.page import opened
        from browser.tab import ARTIFACTS
    except ImportError:
        missing("selenium is not installed: pip install -r tests/requirements.txt")

    with opened(server, lambda: tmp_path_factory.mktemp("browser")) as shown:
        yield shown
    figures = (f'<figure>{path.name}<img src="{path.name}" width="100%"></figure>' for path in ARTIFACTS.glob("*.png"))
    index = "\n".join(("<!doctype html><title>Screenshots</title><body style='columns: 2'>", *sorted(figures)))
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    (ARTIFACTS / "index.html").write_text(index, encoding="utf-8")


@pytest.fixture
def quiet_console(page: Page) -> Iterator[None]:
    """Fail when our files complain on the browser's console during the test."""
    page.complaints()
    page.console.clear()
    yield
    assert page.complaints() == []


@pytest.fixture
def axe(page: Page) -> Any:
    """Return what axe-core finds wrong in the part of the page that a selector names: serious and critical only."""
    if not AXE.exists():
        missing("axe-core is not installed: run `npm ci` in tests/browser")
    page.driver.execute_script(AXE.read_text(encoding="utf-8"))

    def violations(selector: str) -> list[str]:
        found = page.script("return (await axe.run(args[0])).violations", selector)
        return [f"{v['id']}: {v['help']}" for v in found if v["impact"] in ("serious", "critical")]

    return violations


@pytest.fixture
def tome_workflow(sd15_checkpoint: Path) -> dict[str, Any]:
    """The example with Apply ToMe, Set Attention Processor and Optimization Report."""
    from browser.graphs import example

    return example("Text to image - token merging", sd15_checkpoint)


@pytest.fixture
def baseline(page: Page, sd15_checkpoint: Path) -> dict[str, Any]:
    """A workflow without our nodes, open in the canvas renderer."""
    from browser.graphs import plain
    from browser.page import CANVAS

    workflow = plain(sd15_checkpoint)
    page.use(CANVAS)
    page.load(workflow)
    return workflow


@pytest.fixture(scope="session")
def seeds() -> Iterator[int]:
    """Numbers that no run had yet: ComfyUI runs again what it would else take from its cache."""
    return itertools.count()


@pytest.fixture
def ran(page: Page, seeds: Iterator[int], tome_workflow: dict[str, Any]) -> dict[str, Any]:
    """A workflow with two of our nodes that has been run and is open in the canvas renderer, in the dark theme."""
    from browser.page import ATTENTION, CANVAS, SAMPLER, TOME

    page.use(CANVAS)
    page.load(tome_workflow)
    badges = page.badges()
    known = badges.get(str(TOME), "").startswith("on: ●") and HOST_DOES_IT in badges.get(str(ATTENTION), "")
    if not known:  # else remembered from the last test, as when tabs change
        page.script("app.graph.getNodeById(args[0]).widgets[0].value = args[1]", SAMPLER, next(seeds))
        assert page.run() == "success"
        page.load(tome_workflow)
    return tome_workflow


@pytest.fixture
def compared(page: Page, seeds: Iterator[int], server: ComfyServer) -> int:
    """A finished comparison with the demo's small trained model; the number of its node."""

    from browser.graphs import COMPARISON
    from browser.page import PICTURES, VUE

    def compare() -> int:
        page.use(VUE)
        new = {"steps": 3, "runs": 2, "seed": next(seeds)}  # what comes from the cache leaves no badge
        # Changes pictures in three steps, however long they take here.
        first = "PacelineApplyToMe", {"preset": "custom", "method": "kv_downsample", "ratio": 0.75, "residual": "off"}
        settings, batch = new, 2
        if PICTURES:  # of what the nodes are good at
            first = "PacelineReuseSteps", {"budget": 0.05}
            settings, batch = {"steps": 30, "runs": 8}, 1
        node = page.build(COMPARISON, settings, batch, *first)
        saved = {*server.output_dir.rglob("compare_*")}
        assert page.run(seconds=400) == "success"
        assert {*server.output_dir.rglob("compare_*")} == saved  # nothing was to be saved
        return node

    return page.once("comparison", compare)
