"""A page in a real browser: what tests do with any page."""

from __future__ import annotations

import base64
import io
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from comfy_host.paths import ROOT
from PIL import Image

ARTIFACTS = ROOT / "tests" / "artifacts"

SHOTS = not {"PACELINE_SCREENSHOTS", "PACELINE_PICTURES"}.isdisjoint(os.environ)
"""Whether somebody will look at the screenshots: without a GPU each takes a processor as long as a small test."""

Box = tuple[float, float, float, float]
"""Left, top, width and height of a part of the page, in its pixels."""


class Tab:
    """A page in a browser that can be another one after a test has failed.

    Args:
        start: starts a browser, and is called again when a test has failed.
        base_url: the server's.
    """

    def __init__(self, start: Callable[[], Any], base_url: str) -> None:
        self.base_url = base_url
        self._start = start
        self._begin()

    def _begin(self) -> None:
        self.driver, self.closed = self._start(), False
        self.driver.set_script_timeout(120)
        self.console: list[str] = []
        self.made: dict[str, Any] = {}

    def restart(self) -> None:
        """Go on in another browser, in which nothing has been made yet."""
        with suppress(Exception):  # it may be the browser that has failed
            self.driver.quit()
        self._begin()

    def close(self) -> None:
        """End the browser for good."""
        self.closed = True
        self.driver.quit()

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what ``make`` returns. It is called again after a restart."""
        if name not in self.made:
            self.made[name] = make()
        return self.made[name]

    def script(self, body: str, *arguments: Any) -> Any:
        """Run JavaScript, an async function's body with ``args``, and return what it returns."""
        code = (
            "const done = arguments[arguments.length - 1], args = [...arguments].slice(0, -1);"
            f"(async () => {{ {body} }})().then((value) => done([value]), (error) => done(String(error.stack)));"
        )
        answer = self.driver.execute_async_script(code, *arguments)
        if isinstance(answer, str):
            raise AssertionError(answer)
        return answer[0]

    def wait(self, condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
        """Wait until ``condition`` returns something true, and return it."""
        from selenium.common import exceptions

        not_yet = (
            exceptions.StaleElementReferenceException,  # drawn anew since it was found
            exceptions.ElementNotInteractableException,
            exceptions.ElementClickInterceptedException,
        )
        deadline = time.monotonic() + seconds
        while True:
            with suppress(*not_yet):
                if value := condition():
                    return value
            if time.monotonic() > deadline:
                seen = self._saved("timeout")
                raise AssertionError(f"After {seconds:g} s there is no {what}. The page is in {seen}.")
            time.sleep(0.1)

    def screenshot(self, name: str) -> Path:
        """Save what is seen now, where that is wanted."""
        return self._saved(name) if SHOTS else ARTIFACTS / f"{name}.png"

    def _saved(self, name: str) -> Path:
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        self.driver.save_screenshot(str(path))
        return path

    def element(self, selector: str) -> Any:
        """Return the first element, or None."""
        found = self.driver.find_elements("css selector", selector)
        return found[0] if found else None

    def text(self, selector: str) -> str:
        """Return what the first element shows, "" if there is none: read in one go, it can be drawn anew."""
        return self.script("return document.querySelector(args[0])?.innerText ?? ''", selector)

    def click(self, label: str, inside: str) -> None:
        """Click the button that says ``label``, or is named so, in the part of the page that a selector names."""
        found = """
        const buttons = [...document.querySelectorAll(`${args[1]} button`)];
        return buttons.find((one) => [one.textContent.trim(), one.ariaLabel].includes(args[0])) ?? null;
        """
        self.click_on(lambda: self.script(found, label, inside), f"button {label}")

    def click_on(self, find: Callable[[], Any], what: str) -> None:
        """Click the element that ``find`` returns, as soon as it is there and nothing covers it."""

        def clicked() -> bool:
            element = find()
            if element is not None:
                element.click()
            return element is not None

        self.wait(clicked, what)

    def press(self, *keys: str) -> None:
        """Press keys where the focus is."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def complaints(self) -> list[str]:
        """Return the console's errors and warnings that come from our files or name us, since the page was opened."""
        for entry in self.driver.get_log("browser"):
            if entry["level"] in ("SEVERE", "WARNING"):
                self.console.append(entry["message"])
        return [line for line in self.console if "paceline" in line.lower()]

    def picture(self, box: Box, margin: float = 0.0, scale: float = 2.0) -> Image.Image:
        """Return what is seen in a part of the page, drawn ``scale`` times as large as on the screen."""
        x, y, width, height = box
        clip = {"x": x - margin, "y": y - margin, "width": width + 2 * margin, "height": height + 2 * margin}
        answer = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip | {"scale": scale}})
        return Image.open(io.BytesIO(base64.b64decode(answer["data"]))).convert("RGB")

    def window(self, width: int = 0, height: int = 0) -> None:
        """Give the page so many pixels, or again as many as its window has."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def picture_of(self, selector: str, margin: float = 4) -> Image.Image:
        """Return the same of as much of an element as has room on the page."""
        # Not WebDriver's own, which has the size without the zoom of the graph.
        rect = "const { x, y, width, height } = document.querySelector(args[0]).getBoundingClientRect();"
        x, y, width, height = self.script(f"{rect} return [x, y, width, Math.min(height, innerHeight - y - args[1])]",
                                          selector, margin)  # fmt: skip
        return self.picture((x, y, width, height), margin)
