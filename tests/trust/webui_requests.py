"""Random requests to Stable Diffusion WebUI and Forge, with any settings of ours and of theirs."""

from __future__ import annotations

import os
import random
import tempfile
import time
import urllib.error
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import report
from webui.host import NAMES, Host, running, trouble

FAULTS = ("none", "none", "none", "error", "interrupt", "again")
PROMPTS = (
    "a red house",
    "a red house " * 30,
    "a red house AND a green tree :0.5",
    "a [red:green:0.6] house",
    "a (red:1.3) house <lora:small:0.8>",
    "",
)
CHOICES = ("Off", "Same picture", "Hardly visible", "Fastest", "Custom", "Custom", "Custom")
METHODS = ("auto", "merge", "kv_downsample")
BACKENDS = ("the host's own", "auto", "sdpa", "vanilla")
SLOW = ("DPM adaptive",)
TITLES = {"WEBUI": "Stable Diffusion WebUI", "FORGE": "Forge"}


@dataclass(frozen=True)
class Request:
    """One request: what is asked of Paceline, what of the host, and what goes wrong in the middle."""

    seed: int
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    fault: str

    @property
    def asks_for_nothing(self) -> bool:
        on, choice, hires, _, ratio, _, budget, backend = self.arguments
        custom_is_nothing = ratio == 0 and budget == 0 and backend == BACKENDS[0]
        asked = [choice, *([hires] if self.options.get("enable_hr") and hires != "As above" else [])]
        return not on or all(one == "Off" or one == "Custom" and custom_is_nothing for one in asked)


@dataclass
class Verdict:
    """What came of a request: ``right``, ``refused`` by the host with and without us, or ``wrong``."""

    state: str
    problems: list[str] = field(default_factory=list)


class Requests:
    """Makes requests by their seeds from what a host says that it has."""

    def __init__(self, host: Host) -> None:
        self._samplers = [one["name"] for one in host.ask("/sdapi/v1/samplers") if one["name"] not in SLOW]
        self._schedulers = [one["label"] for one in host.ask("/sdapi/v1/schedulers")]
        self._picture = host.asked(steps=2)["images"][0]

    def request(self, seed: int) -> Request:
        draw = random.Random(seed)
        ratio, budget = (draw.choice((0.0, round(draw.random(), 2))) for _ in range(2))
        custom = (draw.choice(METHODS), ratio, draw.choice(("auto", "1", "2", "8")), budget, draw.choice(BACKENDS))
        hires = draw.choice(("As above", "As above", *CHOICES))
        arguments = (draw.random() < 0.9, draw.choice(CHOICES), hires, *custom)
        fault, steps = draw.choice(FAULTS), draw.randint(1, 16)
        options = {"steps": steps, "sampler_name": draw.choice(self._samplers), "seed": draw.randint(0, 1000)}
        options |= {"scheduler": draw.choice(self._schedulers), "prompt": draw.choice(PROMPTS)}
        options |= {"width": 64 * draw.randint(1, 2), "height": 64 * draw.randint(1, 2)}
        options |= {"cfg_scale": draw.choice((1.0, 3.5, 7.0)), "batch_size": draw.choice((1, 1, 1, 2))}
        options["override_settings"] = {"token_merging_ratio": draw.choice((0.0, 0.0, 0.0, 0.5))}
        kind = draw.choice(("plain", "plain", "hires", "img2img"))
        if kind == "hires":
            options |= {"enable_hr": True, "hr_scale": 1.5, "hr_upscaler": "Latent", "denoising_strength": 0.7}
            options |= {"hr_second_pass_steps": draw.randint(1, 8), "hr_additional_modules": ["Use same choices"]}
        if kind == "img2img":
            options |= {"init_images": [self._picture], "denoising_strength": round(draw.uniform(0.3, 1.0), 2)}
        step = draw.randint(0, max(0, steps // 2))
        kinds = {"error": trouble(fail_in=step), "interrupt": trouble(stop_in=step), "again": trouble(again=True)}
        return Request(seed, arguments, options | kinds.get(fault, {}), fault)


class Judge:
    """Asks a host, and looks whether the plain picture is the old one afterwards."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._plain = host.draw()

    def judge(self, request: Request) -> Verdict:
        found, problems = self._ask(request.arguments, request), []
        if isinstance(found, str) and request.fault != "error":
            theirs = self._ask((), request)
            if not isinstance(theirs, str):
                problems.append(f"refused only with Paceline: {found}")
            state = "refused"
        else:
            state = "right"
            problems += self._reports()
        comparable = request.fault != "error" and request.asks_for_nothing
        if state == "right" and comparable and found != self._ask((), request):
            problems.append("asked for nothing, and the picture is another one")
        if self._host.draw() != self._plain:
            problems.append("the plain picture afterwards is another one")
        return Verdict("wrong" if problems else state, problems)

    def _ask(self, arguments: Sequence[Any], request: Request) -> list[bytes] | str:
        """Return the pictures, or what the host says instead of them."""
        try:
            return self._host.draw(tuple(arguments), **request.options)
        except urllib.error.HTTPError as error:
            return f"{error.code} {error.read().decode()[:300]}"

    def _reports(self) -> list[str]:
        """Return what does not agree in what was said last."""
        problems = []
        for title, said in self._host.report().items():
            counts = said["counts"]
            if not said["headline"] or said["state"] not in ("active", "partly", "inactive"):
                problems.append(f"{title} says {said['state']}: {said['headline']}")
            if "computed" in counts and counts["computed"] + counts["forecast"] > counts["evaluations"]:
                problems.append(f"{title} says {counts}")
        return problems


def hosts_here() -> list[str]:
    return [name for name in NAMES if os.environ.get(f"{name}_PATH")]


def ask_hosts(names: Sequence[str], first: int, count: int, minutes: float) -> dict[str, Any]:
    """Ask each host in turn, none for longer than its share of the minutes; return what was found for docs/TRUST.md."""
    started, rows, wrong, asked = time.monotonic(), list[tuple[str, str]](), list[str](), 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder, running(name, Path(folder)) as host:
            states, faults, problems = ask(host, first, count, minutes / len(names))
        said = (", ".join(f"{number} {what}" for what, number in sorted(one.items())) for one in (states, faults))
        rows.append((f"{TITLES[name]}: requests", f"{states.total()} of {count}: {'; '.join(said)}"))
        wrong += [f"{TITLES[name]}, {problem}" for problem in problems]
        asked += states.total()
    return report.result(f"{asked} requests", rows, wrong, started)


def ask(host: Host, first: int, count: int, minutes: float) -> tuple[Counter[str], Counter[str], list[str]]:
    """Ask one host for ``count`` pictures, none begun after so many minutes; return states, faults, what was wrong."""
    started, states, faults, wrong = time.monotonic(), Counter[str](), Counter[str](), list[str]()
    requests, judge = Requests(host), Judge(host)
    for seed in range(first, first + count):
        if time.monotonic() - started > minutes * 60:
            break
        begun, request = time.monotonic(), requests.request(seed)
        verdict = judge.judge(request)
        states[verdict.state] += 1
        faults[request.fault] += 1
        print(f"{host.name} {seed} {request.fault}: {verdict.state}, {time.monotonic() - begun:.1f} s", flush=True)
        if verdict.problems:
            wrong.append(f"seed {seed}: {verdict.problems[0]}")
            print(f"  {str(request)[:2000]}\n  " + "\n  ".join(verdict.problems), flush=True)
    return states, faults, wrong
