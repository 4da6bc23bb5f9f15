"""The card that people share: drawn in the browser from two pictures and a finding."""

from __future__ import annotations

import pytest
from browser.page import Page

pytestmark = pytest.mark.usefixtures("quiet_console")


def test_the_card_shows_whole_pictures(page: Page):
    """Each corner of both pictures is another colour, and all of them are on the card."""
    for width, height in ((512, 512), (512, 1024), (1024, 256)):
        assert page.script(COLOURS, width, height) == [4, 4]


COLOURS = """
const [width, height] = args, colours = ["#ff0000", "#00ff00", "#0000ff", "#ffff00"];
const canvas = Object.assign(document.createElement("canvas"), { width, height });
const context = canvas.getContext("2d");
colours.forEach((colour, corner) => {
  context.fillStyle = colour;
  context.fillRect((corner % 2) * (width - 32), Math.floor(corner / 2) * (height - 32), 32, 32);
});
const src = canvas.toDataURL(), base = document.querySelector("[href$='results.css']").href;
const images = ["", ""].map((alt) => Object.assign(new Image(), { src, alt }));
await Promise.all(images.map((image) => image.decode()));
const { createCard } = await import(new URL("js/card.js", base));
const card = await createCard({ images, headline: "", proved: true, lines: [""], sheet: src });
const drawn = await createImageBitmap(new Blob([card]));
const whole = new OffscreenCanvas(drawn.width, drawn.height).getContext("2d");
whole.drawImage(drawn, 0, 0);
return [0, drawn.width / 2].map((left) => {
  const { data } = whole.getImageData(left, 0, drawn.width / 2, drawn.height), seen = new Set();
  for (let i = 0; i < data.length; i += 4)
    seen.add(`#${[...data.slice(i, i + 3)].map((value) => value.toString(16).padStart(2, "0")).join("")}`);
  return colours.filter((colour) => seen.has(colour)).length;
});
"""
"""Script: how many of the four colours are on each half of a card."""
