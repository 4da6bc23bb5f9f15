"""A screenshot of each of our surfaces in dark and light, on one page to look at: `make screenshots`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser.graphs import COMPARISON, plain
from browser.page import ATTENTION, CANVAS, ESCAPE, TOME, VUE, Page
from browser.sweeps import build
from browser.tab import ARTIFACTS

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("quiet_console")]

THEMES = ("dark", "light")
BOTH = [(renderer, theme) for renderer in (VUE, CANVAS) for theme in THEMES]
GRID = "Apply ToMe.ratio = 0.25, 0.5\nApply ToMe.preset = custom"
DIALOG = "dialog.paceline-dialog[open]"


@pytest.fixture(scope="module", autouse=True)
def sheet(page: Page) -> Iterator[None]:
    """Empty the folder of screenshots, and put those that are taken on one page."""
    folder = ARTIFACTS / "surfaces"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    version = page.script("return window.__COMFYUI_FRONTEND_VERSION__ ?? ''")
    yield
    taken = sorted(path.name for path in folder.glob("*.png"))
    figures = [f'<figure><figcaption>{name}</figcaption><img src="{name}"></figure>' for name in taken]
    style = "<style>body { columns: 2 } figure { break-inside: avoid } img { width: 100% }</style>"
    title = f"<!doctype html><title>Surfaces</title>{style}<h1>Frontend {version}</h1>"
    (folder / "index.html").write_text("\n".join([title, *figures]), encoding="utf-8")
    page.use(CANVAS)


def take(page: Page, name: str) -> None:
    page.settle()
    page.screenshot(f"surfaces/{name}")


def dialog(page: Page, command: str, name: str, theme: str) -> None:
    page.script("app.extensionManager.command.execute(args[0])", command)
    page.wait(lambda: page.element(DIALOG), name)
    take(page, f"{name}_{theme}")
    page.press(ESCAPE)
    page.wait(lambda: page.element(DIALOG) is None, f"end of {name}")


def test_badge_report_and_dialogs(page: Page, ran: dict[str, Any], sd15_checkpoint: Path):
    from selenium.webdriver import ActionChains

    for renderer, theme in BOTH:
        page.use(renderer, theme)
        page.show_node(TOME)
        ActionChains(page.driver).move_to_element(page.badge(ATTENTION)).perform()
        page.wait(lambda: page.element(".paceline-tooltip"), "tooltip")
        take(page, f"badge_{renderer}_{theme}")
        page.show_node(TOME, 0.4)
        take(page, f"badge_far_{renderer}_{theme}")
    for theme in THEMES:
        page.use(VUE, theme)
        dialog(page, "Paceline.Report", "report", theme)
        toggle = "await app.extensionManager.command.execute('Workspace.ToggleBottomPanelTab.paceline.speed')"
        page.script(toggle)
        page.wait(lambda: page.element(".paceline-speed"), "tab")
        take(page, f"speed_tab_{theme}")
        page.script(toggle)
    page.load(plain(sd15_checkpoint))
    for theme in THEMES:
        page.use(VUE, theme)
        dialog(page, "Paceline.MakeFaster", "faster", theme)


def test_comparison(page: Page):
    node = page.once("surfaces", lambda: compare(page))
    for renderer, theme in BOTH:
        page.use(renderer, theme)
        page.show_node(node, 0.9)
        take(page, f"comparison_{renderer}_{theme}")
    for theme in THEMES:
        page.use(VUE, theme)
        page.fit()
        take(page, f"graph_{theme}")
        page.show_node(node, 0.9)
        page.click("Full screen", ".paceline-comparison")
        page.wait(lambda: page.element(".paceline-lightbox[open]"), "full screen")
        take(page, f"full_screen_{theme}")
        page.press(ESCAPE)
        page.wait(lambda: page.element(".paceline-lightbox") is None, "end of the full screen")
    page.open()


def compare(page: Page) -> int:
    page.use(VUE)
    node = page.build(COMPARISON, {"steps": 3, "runs": 2}, 2)
    assert page.run(seconds=400) == "success"
    return node


def test_sweep(page: Page, tmp_path: Path):
    node = build(page, grid=GRID, study=f"surfaces {tmp_path.name}")
    assert page.run(seconds=300) == "success"
    for renderer, theme in BOTH:
        page.use(renderer, theme)
        page.show_node(node, zoom=0.7)
        page.wait(lambda: page.element(".paceline-sweep tbody tr"), "table")
        take(page, f"sweep_{renderer}_{theme}")


def test_help_and_settings(page: Page):
    page.use(VUE)
    node = page.build("return make('PacelineApplyToMe', 0, 0, {}).id")
    page.show_node(node, zoom=0.5)
    page.click_title(node)
    page.click_on(lambda: page.element("[data-testid=info-button]"), "info button")
    page.wait(lambda: page.element(".node-help-content h1"), "help")
    for theme in THEMES:
        page.use(VUE, theme)
        take(page, f"help_{theme}")
    for theme in THEMES:
        page.use(VUE, theme)
        page.script("await app.extensionManager.command.execute('Comfy.ShowSettingsDialog')")
        page.wait(lambda: page.element("[role=dialog] input"), "settings").send_keys("Paceline")
        page.wait(lambda: page.element(".paceline-cache"), "our settings")
        take(page, f"settings_{theme}")
        page.press(ESCAPE)
        page.wait(lambda: page.element(".paceline-cache") is None, "end of the settings")
