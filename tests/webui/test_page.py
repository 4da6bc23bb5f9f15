"""The page of the real hosts in a real browser: the accordion, lines under the picture, what a picture brings back."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from browser.page import PICTURES
from comfy_host.paths import ROOT
from PIL import Image
from webui.host import Host
from webui.page import opened

pytestmark = pytest.mark.slow

TECHNIQUES = ("Set Attention Processor", "Apply ToMe", "Reuse Steps")


def pixels(file: bytes) -> bytes:
    return Image.open(io.BytesIO(file)).convert("RGB").tobytes()


def test_on_and_off_and_on_again_from_a_picture(host: Host, tmp_path: Path):
    with opened(host, tmp_path / "browser") as page:
        assert not page.is_on
        plain = page.generate()
        assert page.lines() == [] and "Paceline" not in page.infotext()

        page.switch()
        page.choose("Fastest")
        fast = page.generate()
        assert [line.split(": ")[0] for line in page.lines()] == [f"Paceline, {title}" for title in TECHNIQUES]
        assert "Paceline: Fastest" in page.infotext()
        assert pixels(fast) != pixels(plain)
        if PICTURES and host.name == "WEBUI":
            page.picture(ROOT / "docs" / "webui.png")

        page.switch()
        assert pixels(page.generate()) == pixels(plain)
        assert page.lines() == []

        page.choose("Same picture")
        (tmp_path / "fast.png").write_bytes(fast)
        page.restore(tmp_path / "fast.png")
        page.wait(lambda: page.is_on and page.choice == "Fastest", "old choice")
        assert pixels(page.generate()) == pixels(fast)
        assert page.complaints() == []
