"""The demo, with few steps: what it does in a real ComfyUI, and the page that it writes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser.conftest import AXE
from browser.page import Page
from cases import often
from comfy_host.paths import ROOT
from comfy_host.server import ComfyServer
from needs import missing

pytestmark = pytest.mark.thorough

STEPS = 4

TUNED = [
    "This run took 12 s: steps 97%, the rest 3%",
    "No change we know would make it faster within the limit you chose.",
    "Nothing was changed, so nothing was written.",
]
"""What one click has said of a model for which nothing was found."""


@pytest.fixture(scope="module")
def written(page: Page, server: ComfyServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The page of a demo with few steps, points and rounds of the large picture, and a recorded click.

    ComfyUI's page is in a tab behind it meanwhile: in sight it takes as much of a processor as what the demo draws.
    """
    path, comfyui, tab = tmp_path_factory.mktemp("demo") / "index.html", page.driver.current_window_handle, page
    tab.driver.switch_to.new_window("tab")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools" / "demo"))
        import page
        import run_demo
        import workflows

        patch.setattr(run_demo, "tune", lambda server, plain: page.Tuned(TUNED, plain))
        patch.setattr(run_demo, "SECONDS_FOR_LARGE", 2.0)
        patch.setattr(run_demo, "CACHES", {name: found[:1] for name, found in run_demo.CACHES.items()})
        patch.setattr(workflows, "LARGE_SIDE", 48)
        options = argparse.Namespace(steps=STEPS, short=True, output=path)
        run_demo.run(server, None, options)
        yield path
    if comfyui in tab.driver.window_handles:  # else a test has failed, and this is another browser
        tab.driver.close()
        tab.driver.switch_to.window(comfyui)


@pytest.fixture(scope="module")
def shown(page: Page, written: Path) -> Page:
    """The page of the demo, in a browser."""
    page.driver.get(written.as_uri())
    return page


def heads(page: Page, part: str) -> list[str]:
    """What stands above the columns of a table, or beside its rows."""
    found: list[str] = page.script(f"return [...document.querySelectorAll('{part} th')].map((one) => one.innerText)")
    return found


def count(page: Page, selector: str) -> int:
    """How many elements there are."""
    found: int = page.script(f"return document.querySelectorAll('{selector}').length")
    return found


def test_the_page_shows_the_verdict_and_every_way_to_draw(shown: Page):
    headline = shown.script("return document.querySelector('h1').innerText")
    assert "faster" in headline
    columns, ways = heads(shown, ".same-work thead"), heads(shown, ".large")
    assert columns[0] == "plain" and columns[-1] == "another seed"
    assert [name.split()[-1] for name in columns[2:3]] == ["steps"]
    assert [name.split()[0] for name in columns[3:5]] == ["EasyCache", "LazyCache"]
    assert ways[:2] == ["plain", "Apply ToMe"]
    assert all(shown.script("return [...document.images].map((image) => image.naturalWidth > 0)"))
    seeds = count(shown, ".large tr:first-child td")
    assert count(shown, ".same-work img") == 3 * (3 * len(columns) - 2)  # beside each the two of its difference
    assert count(shown, ".large img") == seeds * (3 * len(ways) - 2)
    numbers = "(row) => [...row.cells].slice(1).map((cell) => cell.innerText)"
    evaluations, means, _ = shown.script(f"return [...document.querySelectorAll('.same-work .numbers')].map({numbers})")
    assert evaluations[0] == evaluations[-1] == str(STEPS)
    assert all(0 < float(count) <= STEPS for count in evaluations)
    assert heads(shown, ".few thead")[1] == "Reuse Steps 0.15" and count(shown, ".few img") == 3 * (3 * 4 - 2)
    assert means[-1] == "1x"  # another seed, as a share of what another seed changes


@pytest.mark.parametrize("theme", often(["dark"], ["light", "dark"]))
def test_nothing_is_wrong_with_it_in_either_theme_and_it_asks_for_nothing(shown: Page, theme: str):
    if not AXE.exists():
        missing("axe-core is not installed: run `npm ci` in tests/browser")
    scheme = {"name": "prefers-color-scheme", "value": theme}
    shown.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    try:
        shown.driver.execute_script(AXE.read_text(encoding="utf-8"))
        found: list[dict[str, Any]] = shown.script("return (await axe.run()).violations")
        assert [one["id"] for one in found] == []
        requests = shown.script("return performance.getEntriesByType('resource').map((one) => one.name)")
        assert [name for name in requests if not name.startswith("data:")] == []

    finally:
        shown.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_sentence_of_the_page_is_what_was_measured(written: Path):
    import page

    expected = "Reuse Steps 0.05: expected 1.4x (1.2 to 1.6); difference 1/30 ..."
    measured = "1.50x faster (1.42 to 1.55); difference hardly visible, 1/21 of a seed change in the farthest."
    lines = [expected, "drawing the same seeds plain and faster", f"Measured, steps of 3 pictures: {measured}"]
    tuned = page.Tuned(lines, {})
    assert tuned.sentence == measured and tuned.findings == [expected, lines[2]]
    assert page.Tuned([expected], {}).sentence.startswith("Nothing is expected to be faster")
