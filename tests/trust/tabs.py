"""Two tabs of a real browser on a server that many clients use: what they show is of their own runs, and stays."""

from __future__ import annotations

import json
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from browser.chrome import find_browser, start_browser
from browser.greetings import pass_greetings
from browser.page import Page
from comfy_host.client import without_proxy
from comfy_host.server import ComfyServer
from slopes import growing, growth

WORKFLOW = """
const model = make("TrustModel", 0, 0, { kind: "sd15" });
const latent = make("TrustLatent", 0, 200, { kind: "sd15" });
const tome = make("PacelineApplyToMe", 350, 0, { preset: "custom", max_downsample: args[0] });
const attention = make("PacelineSetAttentionProcessor", 700, 0, {});
const sampler = make("KSampler", 1050, 0, { steps: 3, cfg: 4 });
const keep = make("TrustKeep", 1400, 0, { name: args[1] });
link(model, 0, tome, "model");
link(tome, 0, attention, "model");
link(attention, 0, sampler, "model");
link(model, 1, sampler, "positive");
link(model, 2, sampler, "negative");
link(latent, 0, sampler, "latent_image");
link(sampler, 0, keep, "samples");
for (const { widgets = [] } of app.graph.nodes)  // else each run would build another model
  for (const widget of widgets) if (widget.name === "control_after_generate") widget.value = "fixed";
return app.rootGraph.serialize();
"""
"""All tabs have the same nodes with the same numbers, which prompts of other clients have too: "0", "1" and on."""

WATCH = """
const shown = () => Object.fromEntries(app.rootGraph.nodes.flatMap((node) => {
  const badge = node.widgets?.find(({ name }) => name === "$$paceline-badge")?.element.querySelector(".paceline-badge");
  return badge ? [[node.id, [badge.dataset.state, badge.textContent, badge.ariaLabel].join(" | ")]] : [];
}));
const watch = (window.soak = { shown, own: false, outcome: null });
for (const name of ["others", "during", "heard"]) watch[name] = new Set();
setInterval(() => (watch.own ? watch.during : watch.others).add(JSON.stringify(shown())), 50);
const ends = ["execution_success", "execution_error", "execution_interrupted"];
for (const name of ["paceline.activity", "executed", "progress", "execution_start", ...ends])
  app.api.addEventListener(name, ({ detail }) => watch.heard.add(detail.prompt_id));
for (const name of ends) app.api.addEventListener(name, () => (watch.outcome ??= name));
"""
"""Look at the badges all the time, with their counts and details, and at whose runs the page is told of."""

START = """
const { soak } = window;
app.rootGraph.nodes.find(({ type }) => type === "KSampler").widgets.find(({ name }) => name === "seed").value = args[0];
[soak.own, soak.outcome] = [true, null];
await app.queuePrompt(0);
"""

READ = """
const { soak } = window, listed = (set) => [...set].map((text) => JSON.parse(text));
const found = { now: soak.shown(), others: listed(soak.others), during: listed(soak.during), heard: [...soak.heard],
  kept: JSON.parse(sessionStorage.getItem("paceline.runs") ?? "[]").map(({ promptId }) => promptId) };
soak.own = false;
for (const set of [soak.others, soak.during, soak.heard]) set.clear();
return found;
"""
"""What was seen since the last time; from now on other clients' runs only."""

UNDER_WAY = ("working | ", "waiting | ")
MEMORY = {
    "scripts_kb": "a tab's memory by a run, in kB; the last of the three tabs is without our scripts",
    "elements": "elements of the page by a run",
    "listeners": "listeners of the page by a run",
}


@dataclass
class Tab:
    """One tab.

    Attributes:
        handle: WebDriver's name of it.
        workflow: the id of what is open in it.
        shows: by node, what its badges say after each of its runs.
        runs: how many it has done.
        memory: bytes of scripts, and things in the page, after each run.
    """

    handle: str
    workflow: str
    shows: dict[str, str] = field(default_factory=dict)
    runs: int = 0
    memory: list[dict[str, float]] = field(default_factory=list)


class Tabs:
    """Two tabs with a workflow each, and one in which our scripts are switched off: ComfyUI's page grows with each run.

    Args:
        page: what they are in.
    """

    def __init__(self, page: Page) -> None:
        self.page, self.problems, self.looks = page, list[str](), 0
        pass_greetings(page.base_url, **{"Comfy.Extension.Disabled": ["Paceline"]})
        self.plain = self._open("1", "plain")
        self._start(self.plain, 10**6 + 1)  # else the first tab samples nothing: ComfyUI has its picture
        self._end(self.plain)
        pass_greetings(page.base_url, **{"Comfy.Extension.Disabled": []})
        self.tabs = [self._open("1", "first"), self._open("8", "second")]
        for tab in self.tabs:
            self._start(tab, 10**6)
            self._end(tab)
            self.page.wait(lambda: len(self.page.script("return soak.shown()")) == 2, "badges of both nodes")
            tab.shows = self.page.script(READ)["now"]
            self.page.complaints()
            self.page.console.clear()
        if self.tabs[0].shows == self.tabs[1].shows:
            raise AssertionError(f"Both tabs show the same, so that none could be taken for the other: {tab.shows}")

    def work(self, until: float) -> None:
        """Run both workflows again and again until the time is over; each run must show what the first one did."""
        turn = 0
        while time.monotonic() < until:
            turn += 1
            try:
                for tab in (*self.tabs, self.plain):
                    self._start(tab, turn)
                for tab in (*self.tabs, self.plain):
                    self._end(tab)
                    self.check(tab)
            except Exception as error:  # the page is gone, or hangs: that is a finding, and the last turn
                self.problems.append(f"tab: {type(error).__name__}: {error}")
                return

    def check(self, tab: Tab) -> None:
        """Read what a tab in front has shown and heard since the last time, and keep what was wrong with it."""
        self.page.wait(lambda: self.page.script("return soak.shown()") == tab.shows, f"badges {tab.shows}", 30)
        seen = self.page.script(READ)
        self.looks += len(seen["others"]) + len(seen["during"])
        wrong = [f"shows {badges} while others work" for badges in seen["others"] if badges != tab.shows]
        wrong += [
            f"shows {badges[node]} in its own run"
            for badges in seen["during"]
            for node in badges
            if badges[node] != tab.shows.get(node) and not badges[node].startswith(UNDER_WAY)
        ]
        strangers = [run for run in {*seen["heard"], *seen["kept"]} if self._workflow_of(run) != tab.workflow]
        wrong += [f"is told of {run}, a run of others" for run in strangers]
        wrong += [f"console: {line}" for line in self._console()]
        self.problems += [f"tab {tab.handle[:4]}: {problem}" for problem in wrong]
        tab.runs += 1
        tab.memory.append(self._memory())

    def found(self) -> dict[str, Any]:
        """Return what was found, for the table in docs/TRUST.md."""
        plain = self.plain.memory
        grown = [problem for tab in self.tabs for problem in growing(tab.memory, [*MEMORY], plain)]
        runs, tabs = [tab.runs for tab in self.tabs], (*self.tabs, self.plain)
        rows = [("tabs of a browser: runs of the first and of the second", ", ".join(map(str, runs)))]
        rows += [("states of badges seen in them", str(self.looks))]
        for name, what in MEMORY.items():
            rows += [(f"growth of {what}", ", ".join(f"{growth(tab.memory)[name]:+.2g}" for tab in tabs))]
        return {"runs": runs, "rows": rows, "wrong": self.problems + [f"the page: {problem}" for problem in grown]}

    def _open(self, max_downsample: str, name: str) -> Tab:
        if self.page.driver.current_url.startswith("http"):
            self.page.driver.switch_to.new_window("tab")
        self.page.open()
        workflow = self.page.build(WORKFLOW, max_downsample, f"tab_{name}")
        self.page.load(workflow | {"id": f"00000000-0000-4000-8000-{name.encode().hex():0>12}"})
        self.page.script(WATCH)
        return Tab(self.page.driver.current_window_handle, self.page.workflow()["id"])

    def _start(self, tab: Tab, seed: int) -> None:
        self.page.driver.switch_to.window(tab.handle)
        self.page.script(START, seed)

    def _end(self, tab: Tab) -> None:
        self.page.driver.switch_to.window(tab.handle)
        outcome = self.page.wait(lambda: self.page.script("return soak.outcome"), "end of the tab's run", 900)
        if outcome != "execution_success":
            self.problems.append(f"tab {tab.handle[:4]}: its run ended with {outcome}")

    def _workflow_of(self, run: str | None) -> str:
        address = f"{self.page.base_url}/paceline/run?{urllib.parse.urlencode({'prompt_id': run or ''})}"
        with without_proxy.open(address, timeout=60) as answer:
            return str(json.load(answer).get("workflow", {}).get("id", ""))

    def _console(self) -> list[str]:
        self.page.complaints()
        lines = list(self.page.console)
        self.page.console.clear()
        return lines

    def _memory(self) -> dict[str, float]:
        ask = self.page.driver.execute_cdp_cmd
        ask("HeapProfiler.collectGarbage", {})
        counts = ask("Memory.getDOMCounters", {})
        heap = ask("Runtime.getHeapUsage", {})
        return {
            "scripts_kb": heap["usedSize"] / 1024,
            "elements": counts["nodes"],
            "listeners": counts["jsEventListeners"],
        }


@contextmanager
def browser_tabs(server: ComfyServer) -> Iterator[Tabs | None]:
    """Open two tabs on a server that is quiet; None where there is no browser."""
    browser = find_browser()
    if browser is None:
        yield None
        return
    with tempfile.TemporaryDirectory() as profile:
        page = Page(lambda: start_browser(*browser, profile=Path(profile)), server.base_url)
        try:
            yield Tabs(page)
        finally:
            page.close()
