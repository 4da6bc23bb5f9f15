"""Looking at a finished comparison in its node."""

from __future__ import annotations

from browser.page import Page

LOADED = """
const pictures = [...document.querySelectorAll(`${args[0] ?? ".paceline-comparison"} .paceline-viewer img`)];
return pictures.length === 2 && pictures.every((picture) => picture.complete && picture.naturalWidth > 0);
"""


def looks_at(page: Page, compared: int, renderer: str, theme: str = "dark") -> None:
    """Show the finished comparison in a renderer."""
    page.use(renderer, theme)
    page.show_node(compared, zoom=0.9)
    page.wait(lambda: page.script(LOADED), "pictures")
