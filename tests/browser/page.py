"""ComfyUI's page in a real browser, with what a user does as methods."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from needs import missing
from PIL import Image

from .chrome import find_browser, start_browser
from .graphs import BUILD
from .greetings import begin_anew
from .scripts import COUNT_REQUESTS, FEWER_FRAMES, FEWER_IN_RUNS, SLOW_CONNECTION
from .tab import Box, Tab

ESCAPE, ENTER, TAB, LEFT = "\ue00c", "\ue007", "\ue004", "\ue012"
"""Keys, as WebDriver names them."""

TOME, ATTENTION, SAMPLER = 4, 5, 8
"""Numbers of nodes in the example ``Text to image - token merging``."""

CANVAS, VUE = "canvas", "vue"
"""The frontend's two renderers of nodes: LiteGraph's canvas, and "Nodes 2.0"."""

PICTURES = bool(os.environ.get("PACELINE_PICTURES"))
"""Whether the pictures in the repository shall be made anew, as ``make pictures`` asks for."""


def save(picture: Image.Image, path: Path) -> None:
    """Save a picture of few colours as a small file."""
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


class Page(Tab):
    """The page of a running ComfyUI."""

    def restart(self) -> None:
        super().restart()
        self.open()

    def open(self, query: str = "") -> Page:
        """Open the page and wait until it is ready."""
        source = {"source": COUNT_REQUESTS + FEWER_FRAMES}
        self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
        self.driver.get(f"{self.base_url}/{query}")
        return self.ready()

    def ready(self) -> Page:
        """Wait until the page shows a workflow."""
        # The last thing that start-up does is to show the workflow of last time.
        ready = "return !!(window.app?.vueAppReady && window.app.canvas?.graph && window.app.graph.nodes)"
        self.wait(lambda: self.driver.execute_script(ready), "ComfyUI", 240)
        self.wait(lambda: self.script("return app.extensionManager.workflow?.activeWorkflow != null"), "workflow")
        self.script(FEWER_IN_RUNS)
        return self

    def setting(self, name: str, value: Any) -> None:
        """Change a setting of the frontend."""
        self.script("await app.extensionManager.setting.set(args[0], args[1])", name, value)

    def speak(self, language: str) -> None:
        """Let the page speak a language, and wait until it does.

        The page fetches the words, then the nodes' names, then opens the workflow again. Changed back before that,
        it can keep the names of the first language for ever.
        """
        if self.script("return app.extensionManager.setting.get('Comfy.Locale')") == language:
            return
        self.script("window.openedBefore = app.rootGraph.extra")
        self.setting("Comfy.Locale", language)
        speaks = (
            "return document.querySelector('#vue-app').__vue_app__.config.globalProperties.$i18n.locale === args[0]"
            " && app.rootGraph.extra !== window.openedBefore"
        )
        self.wait(lambda: self.script(speaks, language), f"page that speaks {language}", 60)
        self.settle()

    def use(self, renderer: str, theme: str = "dark") -> None:
        """Choose the renderer of nodes and the colours."""
        self.setting("Comfy.VueNodes.Enabled", renderer == VUE)
        self.setting("Comfy.ColorPalette", theme)
        self.settle()

    def settle(self) -> None:
        """Wait until the server has answered all that the page has asked, and the canvas has been drawn again."""
        self.script(
            """
            const later = (milliseconds) => new Promise((next) => setTimeout(next, milliseconds));
            const { requests } = window, deadline = performance.now() + 100_000;
            do {
              while (requests?.size && performance.now() < deadline) await later(20);
              app.canvas.setDirty(true, true);
              for (let i = 0; i < 2; i++) await new Promise((next) => requestAnimationFrame(next));
              await later(60);
            } while (requests?.size && performance.now() < deadline);
            if (requests?.size) throw new Error(`no answer from the server to ${[...requests].join()}`);
            """
        )

    def load(self, workflow: dict[str, Any]) -> None:
        """Open a workflow and close all others."""
        self.script(
            """
            await app.loadGraphData(args[0], true, true, args[1]);
            const { workflow } = app.extensionManager;
            for (const tab of [...workflow.openWorkflows])
              if (tab !== workflow.activeWorkflow) await workflow.closeWorkflow(tab);
            """,
            workflow,
            workflow.get("id", "test"),
        )
        self.settle()

    def empty(self) -> None:
        """Open a workflow without nodes."""
        self.load({"nodes": [], "links": [], "version": 0.4, "last_node_id": 0, "last_link_id": 0})

    def build(self, body: str, *arguments: Any) -> Any:
        """Open a workflow and put nodes into it, in JavaScript: as ``script``, with ``make`` and ``link``."""
        self.empty()
        return self.script(BUILD + body, *arguments)

    def workflow(self) -> dict[str, Any]:
        """Return the open workflow as it would be saved."""
        return json.loads(self.script("return JSON.stringify(app.rootGraph.serialize())"))

    def run(self, seconds: float = 120.0) -> str:
        """Run the open workflow; return ``success``, or the message of the error."""
        self.script(
            """
            window.ended = null;
            const once = { once: true };
            app.api.addEventListener("execution_success", () => (window.ended ??= "success"), once);
            app.api.addEventListener("execution_error", (e) => (window.ended ??= e.detail.exception_message), once);
            await app.queuePrompt(0);
            """
        )
        outcome = self.wait(lambda: self.script("return window.ended"), "end of the run", seconds)
        self.settle()
        return outcome

    @contextmanager
    def slow_connection(self) -> Iterator[None]:
        """Let each run be over before the page hears which run it is, and the server hears what the page asks."""
        self.script(SLOW_CONNECTION)
        try:
            yield
        finally:
            self.script("delete app.api.fetchApi")

    def scripts(self) -> str:
        """Return the folder under which the server has our scripts."""
        with urllib.request.urlopen(f"{self.base_url}/extensions", timeout=30) as answer:
            path = next(path for path in json.load(answer) if path.endswith("/paceline.js"))
        return path.split("/")[2]

    def show_node(self, node_id: int, zoom: float = 1.5) -> None:
        """Bring a node into the middle of the view."""
        self.script(
            """
            const node = app.canvas.graph.getNodeById(args[0]), { ds, canvas } = app.canvas;
            const area = canvas.getBoundingClientRect();
            ds.scale = args[1];
            ds.offset[0] = area.width / 2 / ds.scale - node.pos[0] - node.size[0] / 2;
            ds.offset[1] = area.height / 2 / ds.scale - node.pos[1] - node.size[1] / 2;
            """,
            node_id,
            zoom,
        )
        self.settle()

    def drawn(self) -> list[str]:
        """Return the texts that the canvas draws."""
        self.script(
            """
            const plain = CanvasRenderingContext2D.prototype.fillText;
            window.drawnTexts = [];
            CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
              window.drawnTexts.push(text);
              return plain.call(this, text, ...rest);
            };
            window.plainFillText = plain;
            """
        )
        self.settle()
        return self.script(
            "CanvasRenderingContext2D.prototype.fillText = window.plainFillText; return window.drawnTexts"
        )

    def dismiss(self) -> None:
        """Close what the frontend says about missing models and nodes."""
        self.press(ESCAPE)
        # In one go: some close by themselves.
        close = ".p-toast-close-button, [data-testid=close-toast]"
        self.script("for (const button of document.querySelectorAll(args[0])) button.click()", close)
        self.settle()

    def fit(self) -> Box:
        """Bring the whole graph into the view, below the page's own buttons, and return where it stands."""
        box = self.script(
            """
            await app.extensionManager.setting.set("Comfy.RightSidePanel.IsOpen", false);
            const { ds, canvas, graph } = app.canvas, area = canvas.getBoundingClientRect();
            const margin = { left: 80, top: 110, right: 30, bottom: 70 };
            const edges = graph.nodes.map(({ pos, size }) => [pos[0], pos[1] - 30, pos[0] + size[0], pos[1] + size[1]]);
            const [left, upper] = [0, 1].map((i) => Math.min(...edges.map((edge) => edge[i])));
            const width = Math.max(...edges.map((edge) => edge[2])) - left;
            const height = Math.max(...edges.map((edge) => edge[3])) - upper;
            const room = [area.width - margin.left - margin.right, area.height - margin.top - margin.bottom];
            app.canvas.deselectAll();
            ds.scale = Math.min(room[0] / width, room[1] / height, 1);
            ds.offset[0] = (margin.left + (room[0] - width * ds.scale) / 2) / ds.scale - left;
            ds.offset[1] = (margin.top + (room[1] - height * ds.scale) / 2) / ds.scale - upper;
            return [(left + ds.offset[0]) * ds.scale + area.left, (upper + ds.offset[1]) * ds.scale + area.top,
              width * ds.scale, height * ds.scale];
            """
        )
        self.settle()
        return tuple(box)

    def click_title(self, node_id: int) -> None:
        """Click on a node's title, in either renderer, which selects the node."""
        from selenium.webdriver import ActionChains

        x, y = self.script(
            """
            const { pos, size } = app.canvas.graph.getNodeById(args[0]), { scale, offset } = app.canvas.ds;
            const { left, top, width, height } = app.canvas.canvas.getBoundingClientRect();
            const x = (pos[0] + size[0] / 2 + offset[0]) * scale, y = (pos[1] - 12 + offset[1]) * scale;
            return [Math.round(x - width / 2), Math.round(y - height / 2)];
            """,
            node_id,
        )
        ActionChains(self.driver).move_to_element_with_offset(self.element("#graph-canvas"), x, y).click().perform()
        self.settle()

    def badges(self) -> dict[str, str]:
        """Return ``state: text`` of every badge in the open graph, by node id."""
        return self.script(
            """
            const seen = {};
            for (const node of app.canvas.graph.nodes) {
              const widget = node.widgets?.find((widget) => widget.name === "$$paceline-badge");
              const badge = widget?.element.querySelector(".paceline-badge");
              if (badge) seen[node.id] = `${badge.dataset.state}: ${badge.textContent}`;
            }
            return seen;
            """
        )

    def badge(self, node_id: int) -> Any:
        """Return the badge's element at a node, or None."""
        return self.script(
            """
            const node = app.canvas.graph.getNodeById(args[0]);
            const widget = node?.widgets?.find((widget) => widget.name === "$$paceline-badge");
            return widget?.element.querySelector(".paceline-badge") ?? null;
            """,
            node_id,
        )


@contextmanager
def opened(server: Any, profile: Callable[[], Path]) -> Iterator[Page]:
    """Open the page of a server, past its greetings for new users; ``profile`` makes the folder of each browser."""
    found = find_browser()
    if found is None:
        missing("there is no browser: `make setup BROWSER=1` installs one, or set CHROME and CHROMEDRIVER")

    def start() -> Any:
        begin_anew(server)
        return start_browser(*found, profile=profile())

    shown = Page(start, server.base_url)
    try:
        yield shown.open()
    finally:
        shown.close()
