"""The dialog of *Make this workflow faster*, and the graph that it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from browser.page import Page

from .graphs import TRAINED

SAMPLED = (
    TRAINED
    + """
for (const side of ["width", "height"]) latent.widgets.find(({ name }) => name === side).value = args[1] ?? 32;
const settings = { seed: 42, control_after_generate: "fixed", cfg: 3, sampler_name: "dpmpp_2m", scheduler: "karras" };
const sampler = make("KSampler", 680, 0, { ...settings, steps: args[0] });
link(loader, 0, sampler, "model");
sampled(sampler);
const decode = make("IconDecode", 1010, 0, {});
link(sampler, 0, decode, "samples");
link(decode, 0, make("PreviewImage", 1010, 130, {}), "images");
"""
)
"""Script that draws a picture with the small trained model, in so many steps, and of so many pixels a side (32)."""


def open_dialog(page: Page) -> Any:
    page.script("app.extensionManager.command.execute('Paceline.MakeFaster')")
    return page.wait(lambda: page.element("dialog.paceline-dialog .paceline-faster"), "dialog")


def press(page: Page, label: str) -> None:
    page.click(label, "dialog.paceline-dialog")


def choose(page: Page, name: str) -> None:
    page.click_on(lambda: page.element(f"dialog input[value={name}]"), f"choice {name}")


def said(page: Page) -> str:
    """Return what the dialog says in its lines."""
    return page.text(".paceline-faster ul")


def offer(page: Page, seconds: float = 120) -> str:
    """Wait for the answer, and return its offer."""
    return page.wait(lambda: page.text(".paceline-offer"), "offer", seconds)


def graph(page: Page) -> tuple[set[str], set[tuple[Any, ...]]]:
    """Return the types of the nodes, and what is wired to what."""
    saved = page.workflow()
    types = {node["id"]: node["type"] for node in saved["nodes"]}
    return set(types.values()), {(types[link[1]], link[2], types[link[3]], link[4]) for link in saved["links"]}
