"""The dialog of *Make this workflow faster*, and the graph that it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from browser.page import Page


def open_dialog(page: Page) -> Any:
    page.script("app.extensionManager.command.execute('Paceline.MakeFaster')")
    return page.wait(lambda: page.element("dialog.paceline-dialog .paceline-faster"), "dialog")


def press(page: Page, label: str) -> None:
    page.click(label, "dialog.paceline-dialog")


def choose(page: Page, name: str) -> None:
    page.click_on(lambda: page.element(f"dialog input[value={name}]"), f"choice {name}")


def graph(page: Page) -> tuple[set[str], set[tuple[Any, ...]]]:
    """Return the types of the nodes, and what is wired to what."""
    saved = page.workflow()
    types = {node["id"]: node["type"] for node in saved["nodes"]}
    return set(types.values()), {(types[link[1]], link[2], types[link[3]], link[4]) for link in saved["links"]}
