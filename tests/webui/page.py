"""The page of Stable Diffusion WebUI and Forge in a real browser, with what a user does as methods."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from needs import missing
from PIL import Image

from .host import Host

try:
    from browser.chrome import find_browser, start_browser
    from browser.tab import Tab
except ImportError:
    missing("selenium is not installed: pip install -r tests/requirements.txt")

MADE = "document.querySelector('#txt2img_gallery img')"
SWITCH = "document.querySelector('#tab_txt2img [id$=paceline_on-visible-checkbox]')"
CHOSEN = "document.querySelector('#tab_txt2img [id$=paceline_choice] input:checked')"

FILE = f"""
const file = await (await fetch({MADE}.src)).blob(), reader = new FileReader();
return new Promise((done) => {{
  reader.onload = () => done(reader.result.split(",")[1]);
  reader.readAsDataURL(file);
}});
"""


class WebUIPage(Tab):
    """The page of a host, on the tab *txt2img*."""

    def open(self) -> WebUIPage:
        self.driver.get(self.base_url)
        ready = "return Object.keys(window.opts ?? {}).length > 0 && !!document.querySelector('#txt2img_generate')"
        self.wait(lambda: self.script(ready), "page with options", 240)
        return self

    @property
    def is_on(self) -> bool:
        return self.script(f"return {SWITCH}.checked")

    @property
    def choice(self) -> str:
        return self.script(f"return {CHOSEN}?.value")

    def switch(self) -> None:
        """Click on the accordion: opened it is on, closed it is off."""
        before = self.is_on
        self.script("document.querySelector('#tab_txt2img [id$=paceline_on] .label-wrap').click()")
        self.wait(lambda: self.is_on != before, "change of the accordion")

    def choose(self, choice: str) -> None:
        self.script(
            "document.querySelector(`#tab_txt2img [id$=paceline_choice] input[value='${args[0]}']`).click()", choice
        )
        self.wait(lambda: self.choice == choice, choice)

    def generate(self) -> bytes:
        """Press Generate, and return the file of the picture when it is there."""
        source = f"return {MADE}?.src ?? ''"
        before = self.script(source)
        self.script("document.querySelector('#txt2img_generate').click()")
        self.wait(lambda: self.script(source) not in ("", before), "picture", 240)
        self.wait(lambda: "Steps:" in self.infotext(), "text of the picture")
        return base64.b64decode(self.script(FILE))

    def infotext(self) -> str:
        return self.text("#html_info_txt2img")

    def picture(self, path: Path) -> None:
        """Save how the accordion looks, and beside it what is said under the picture."""
        selectors = ("#tab_txt2img [id$=paceline_on]", "#html_log_txt2img")
        parts = []
        for selector in selectors:
            self.script("args[0].scrollIntoView()", self.element(selector))
            parts.append(Image.open(io.BytesIO(self.element(selector).screenshot_as_png)))
        margin = 16
        size = (sum(part.width + margin for part in parts) + margin, max(part.height for part in parts) + 2 * margin)
        whole, left = Image.new("RGB", size, "white"), margin
        for part in parts:
            whole.paste(part, (left, margin))
            left += part.width + margin
        whole.save(path, optimize=True)

    def lines(self) -> list[str]:
        """Return what Paceline says under the picture."""
        return [line for line in self.text("#html_log_txt2img").splitlines() if line.startswith("Paceline")]

    def restore(self, file: Path) -> None:
        """Give a picture to *PNG Info*, and send what it says to *txt2img*."""
        tab = "[...document.querySelectorAll('#tabs button')].find((one) => one.innerText.trim() === 'PNG Info')"
        self.script(f"{tab}.click()")
        place = "#pnginfo_image input[type=file]"
        self.wait(lambda: self.element(place), "place for a file")
        self.element(place).send_keys(str(file))
        self.wait(lambda: "Steps:" in self.text("#tab_pnginfo"), "text of the picture")
        self.script("document.querySelector('#tab_pnginfo #txt2img_tab').click()")

    def install(self, address: str) -> None:
        """Give an address to *Extensions > Install from URL*, and wait until it is there."""
        button = "[...document.querySelectorAll('button')].find((one) => one.textContent.trim() === args[0])"
        for tab in ("Extensions", "Install from URL"):
            self.wait(lambda tab=tab: self.script(f"{button}?.click(); return !!{button}", tab), tab)
        label = "[...document.querySelectorAll('#tab_extensions label')].find((one) => one.innerText.includes(args[0]))"
        field = f"return {label}?.querySelector('textarea, input') ?? null"
        self.wait(lambda: self.script(field, "git repository"), "place for an address").send_keys(address)
        # Hidden buttons are on other tabs.
        shown = button.replace("one.text", "one.offsetParent && one.text")
        self.script(f"{shown}.click()", "Install")
        self.wait(lambda: "Installed into" in self.text("#extension_install_result"), "end of the installation", 240)


@contextmanager
def opened(host: Host, profile: Path) -> Iterator[WebUIPage]:
    """Open the page of a host in a browser with ``profile`` for its data."""
    found = find_browser()
    if found is None:
        missing("there is no browser: `make setup BROWSER=1` installs one, or set CHROME and CHROMEDRIVER")
    page = WebUIPage(lambda: start_browser(*found, profile=profile), host.base_url)
    try:
        yield page.open()
    finally:
        page.close()
