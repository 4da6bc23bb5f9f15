"""The card that people share, as a click on *Save card* hands it to the browser."""

from __future__ import annotations

import base64
import io

from browser.page import Page
from browser.tab import ARTIFACTS
from PIL import Image


def saved_card(page: Page, within: str) -> Image.Image:
    """Save the card of what a selector finds, and return it."""
    page.script(
        """
        const { createObjectURL } = URL;
        window.card = null;
        URL.createObjectURL = (blob) => {
          URL.createObjectURL = createObjectURL;
          return createObjectURL((window.card = blob));
        };
        """
    )
    page.click("Save card", within)
    page.wait(lambda: page.script("return window.card !== null"), "card")
    encoded = page.script(
        "return btoa([...new Uint8Array(await window.card.arrayBuffer())].map((b) => String.fromCharCode(b)).join(''))"
    )
    card = Image.open(io.BytesIO(base64.b64decode(encoded)))
    card.load()
    card.save(ARTIFACTS / f"card_{within.removeprefix('.paceline-')}.png")
    assert card.size == (1200, 630)
    assert len(card.convert("RGB").resize((60, 30)).getcolors(4000)) > 100, "pictures and text, not an empty card"
    return card
