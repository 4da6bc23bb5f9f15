"""Bad input of every kind for each of our nodes, made from what the server says about them, and a rule for answers.

An answer is clear if ComfyUI's own check refuses the prompt, if the picture is drawn, or if a sentence of ours says
what is wrong. A message of Python or torch, the name of an exception's class and a path on the server are unclear.
"""

from __future__ import annotations

import math
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import prompts
import report
from comfy_host.client import ComfyClient, PromptFailed
from executing import node
from hosting import trust_server
from judge import is_sentence_of_ours
from prompts import Prompt
from schemas import WIDGETS, Input, inputs_of
from tables import TRANSFORMERS, UNETS, WIDER

MODEL_KINDS = [*dict.fromkeys((*UNETS, *TRANSFORMERS)), *WIDER]
SIZES = ((1, 1, 1), (1, 31, 1), (7, 5, 1), (8, 8, 0), (8, 8, 7), (17, 23, 2), (2, 2, 1))
"""Height, width and batch of the latent."""
LONG = ("steps", "runs", "most_runs", "trials")

UNCLEAR = (
    (r"\b[A-Z][A-Za-z]*(Error|Exception|Warning)\b", "the name of an exception's class"),
    (
        r"object has no attribute|not subscriptable|not callable|unexpected keyword|positional argument",
        "a message of Python",
    ),
    (r"unsupported operand|not supported between|NoneType|<class '|<function |invalid literal", "a message of Python"),
    (
        r"size mismatch|must match the size|mat1 and mat2|expected scalar type|out of range|shape '\[",
        "a message of torch",
    ),
    (r"Traceback|line \d+, in", "a traceback"),
    (r"(^|[\s'\"(])(/(tmp|home|work|root|usr|var)/)", "a path on the server's disk"),
)
"""What a newcomer cannot make anything of."""

LINKS = ("MODEL", "VAE", "CONDITIONING", "LATENT", "CONTROL_NET")
"""Types of links that a wrong thing can come over, in the order of the outputs of TrustWrongType."""

_ANYTHING: list[Any] = [None, {}, [1, 2, 3], {"__value__": [1]}, "", "x" * 100_000, "\0", "𝕏\u202e\ud7ff\n\t"]
_NUMBERS: list[Any] = [math.nan, math.inf, -math.inf, 1e308, -(2**70), 2**70, "seven", "0x10", True]
_TEXTS: list[Any] = [
    "../../etc/x",
    "/etc/x",
    "C:\\x",
    "%year%" * 50,
    "a/b\0c",
    "CON",
    "{}{0!r:.9}",
    "'; DROP TABLE x",
    7,
    math.nan,
]
_CHOICES: list[Any] = ["nonsense", "../x", "Balanced", 7, math.nan, True]
_BOOLEANS: list[Any] = ["maybe", 2, math.nan]


def wrong_values(entry: Input) -> list[Any]:
    """Return values that are wrong for an input, and some that are only strange."""
    if entry.kind in ("INT", "FLOAT"):
        low, high = entry.options.get("min"), entry.options.get("max")
        beyond = [bound for bound in (low, high) if bound is not None]
        step = 1 if entry.kind == "INT" else 0.5
        outside = [low - step] if low is not None else []
        outside += [high + step] if high is not None else []
        return [*_ANYTHING, *_NUMBERS, *beyond, *outside]
    return [*_ANYTHING, *{"COMBO": _CHOICES, "BOOLEAN": _BOOLEANS, "STRING": _TEXTS}[entry.kind]]


@dataclass
class Case:
    """One bad input.

    Attributes:
        node: class of the node.
        what: which input, and what it is given.
        prompt: in API format.
        plain: the same without the node, where that can be drawn.
    """

    node: str
    what: str
    prompt: Prompt
    plain: Prompt | None = None


class Cases:
    """Makes the cases; ``object_info`` is what the server says about all nodes."""

    def __init__(self, object_info: dict[str, Any]) -> None:
        self.wrong = object_info["TrustWrongType"]["input"]["required"]["value"][0]
        self.info = {name: info for name, info in object_info.items() if name.startswith("Paceline")}

    def all(self) -> Iterator[Case]:
        """Yield every case."""
        for name in sorted(self.info):
            yield from self._inputs(name)
            yield from self._surroundings(name)

    def some(self, count: int, seed: int) -> list[Case]:
        """Return a sample without those that trace whole networks, which takes seconds; the same for the same seed."""
        quick = [case for case in self.all() if not ("Compile" in case.node and "=" not in case.what)]
        return random.Random(seed).sample(quick, count)

    def _inputs(self, name: str) -> Iterator[Case]:
        for entry in inputs_of(self.info[name]):
            if entry.kind in WIDGETS:
                for value in wrong_values(entry):
                    if entry.name in LONG and value == entry.options["max"]:
                        continue  # allowed, and takes hours
                    yield Case(name, f"{entry.name} = {_short(value)}", self.prompt(name, {entry.name: value}))
            elif entry.kind in LINKS:
                yield from self._links(name, entry)

    def _links(self, name: str, entry: Input) -> Iterator[Case]:
        for value in self.wrong:
            prompt = self.prompt(name)
            prompt["wrong"] = node("TrustWrongType", value=value)
            link = prompt["node"]["inputs"][entry.name] = ["wrong", LINKS.index(entry.kind)]
            # What no sampler takes, the nodes that sample need not take either; what is no prompt at all they name.
            plain, sampled = None, entry.name.removesuffix("_optimized")
            if sampled in ("positive", "negative"):
                plain = self.without(prompt)
                plain["sampler"]["inputs"][sampled] = link
            yield Case(name, f"{entry.name} = link to {value}", prompt, plain)
        for link in (["nobody", 0], ["model", 99], ["model", -1], ["latent", 0], [], ["model"], [None, None], "text"):
            prompt = self.prompt(name)
            prompt["node"]["inputs"][entry.name] = link
            yield Case(name, f"{entry.name} = {link}", prompt)
        prompt = self.prompt(name)
        prompt["node"]["inputs"].pop(entry.name, None)
        yield Case(name, f"{entry.name} is not connected", prompt)

    def _surroundings(self, name: str) -> Iterator[Case]:
        """Yield models of every kind, and sizes at the edge of what there is."""
        for kind in MODEL_KINDS:
            prompt = self.prompt(name, kind=kind)
            yield Case(name, f"model {kind}", prompt, self.without(prompt))
        for kind in ("smallest", "sd15"):
            for size in SIZES:
                prompt = self.prompt(name, kind=kind, size=size)
                yield Case(name, f"{kind}, size {size}", prompt, self.without(prompt))

    def without(self, prompt: Prompt) -> Prompt:
        """Return the graph with the node of ours taken out, and its inputs led on to where its outputs went."""
        info, given = self.info[prompt["node"]["class_type"]], prompt["node"]["inputs"]
        passed = {entry.kind: given[entry.name] for entry in reversed(list(inputs_of(info))) if entry.name in given}
        rest = {name: {**node, "inputs": dict(node["inputs"])} for name, node in prompt.items() if name != "node"}
        taken = ("positive", "negative", "latent_image")
        rest["sampler"]["inputs"] |= {name: given[name] for name in taken if name in given}
        for one in rest.values():
            for name, value in one["inputs"].items():
                if isinstance(value, list) and value[0] == "node":
                    one["inputs"][name] = passed[info["output"][value[1]]]
        return rest

    # ---- prompts

    def prompt(
        self,
        name: str,
        changes: dict[str, Any] | None = None,
        kind: str = "smallest",
        size: tuple[int, int, int] = (16, 16, 1),
    ) -> Prompt:
        """Return the graph with a node of ours and some of its inputs changed."""
        nodes = prompts.plain(kind, size)
        nodes["vae"] = node("TrustVAE", copy=0)
        nodes["control"] = node("TrustControlNet", copy=0)
        source = {"MODEL": ["model", 0], "CONDITIONING": ["model", 1], "LATENT": ["latent", 0], "VAE": ["vae", 0],
                  "CONTROL_NET": ["control", 0]}  # fmt: skip
        inputs: dict[str, Any] = {}
        for entry in inputs_of(self.info[name]):
            if entry.kind in source:
                inputs[entry.name] = source[entry.kind]
            elif entry.kind in WIDGETS:
                inputs[entry.name] = entry.options.get("default", entry.choices[0] if entry.choices else 0)
        quick = {"backend": "eager", "steps": 1, "runs": 1, "trials": 1, "grid": "ApplyToMe: on"}
        quick["most_runs"] = 0
        if name == "PacelineSetAttentionProcessor":
            quick["backend"] = "auto"
        inputs |= {key: value for key, value in quick.items() if key in inputs}
        nodes["node"] = node(name, **inputs | (changes or {}))
        outputs = self.info[name]["output"]
        if "MODEL" in outputs:
            nodes["sampler"]["inputs"]["model"] = ["node", outputs.index("MODEL")]
        elif "VAE" in outputs:
            link = ["node", outputs.index("VAE")]
            nodes["decode"] = node("VAEDecode", samples=["latent", 0], vae=link)
            nodes["show"] = node("PreviewImage", images=["decode", 0])
        elif "CONTROL_NET" in outputs:
            nodes["hint"] = node("TrustHint", seed=1)
            links = {"positive": ["model", 1], "negative": ["model", 2], "image": ["hint", 0]}
            links["control_net"] = ["node", outputs.index("CONTROL_NET")]
            numbers = {"strength": 1.0, "start_percent": 0.0, "end_percent": 1.0}
            nodes["apply"] = node("ControlNetApplyAdvanced", **links, **numbers)
            nodes["sampler"]["inputs"] |= {"positive": ["apply", 0], "negative": ["apply", 1]}
            nodes["model"]["inputs"]["kind"] = nodes["latent"]["inputs"]["kind"] = "sd15"
        return nodes


def answer(client: ComfyClient, case: Case) -> tuple[str, str]:
    """Return the kind of answer that a case gets, and the sentence."""
    try:
        client.run(case.prompt)
    except PromptFailed as error:
        message = str(error)
        if not error.traceback and "." not in error.exception_type:  # a kind of validation error, not a class
            return "refused by ComfyUI", message
        ours = (error.node_type or "").startswith("Paceline")
        if ours and is_sentence_of_ours(error):
            reason = unclear(message)
            return ("our sentence", message) if reason is None else ("unclear", f"{reason}: {message}")
        if fails(client, case.plain):
            return "ComfyUI's own", message
        return "unclear", f"{error.node_type}: {error.exception_type}: {message}\n{error.traceback[-900:]}"
    return "drawn", ""


def fails(client: ComfyClient, prompt: Prompt | None) -> bool:
    """Return whether ComfyUI fails without any node of ours."""
    if prompt is None:
        return False
    try:
        client.run(prompt)
    except PromptFailed:
        return True
    return False


def unclear(message: str) -> str | None:
    """Return what is unclear about a message, or None."""
    for pattern, what in UNCLEAR:
        if re.search(pattern, message):
            return what
    if len(message) > 1500:
        return "too long"
    return None if re.match(r"\S+ \S+ \S+", message) else "no sentence"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:50]}... ({len(text)} characters)"


def give_bad_inputs(minutes: float) -> dict[str, Any]:
    """Run all cases that there is time for, and return what was found, for the table in docs/TRUST.md."""
    answers: Counter[str] = Counter()
    wrong: list[str] = []
    started = time.monotonic()
    with trust_server([]) as server, server.client() as client:
        cases = Cases(client.object_info())
        everything = list(cases.all())
        for case in everything:
            if time.monotonic() - started > minutes * 60:
                break
            begun = time.monotonic()
            try:
                kind, message = answer(client, case)
            except Exception as error:  # the server is gone, or hangs
                kind, message = "unclear", f"{type(error).__name__}: {error}"
            answers[kind] += 1
            if kind == "unclear":
                wrong.append(f"{case.node}: {case.what} ({time.monotonic() - begun:.1f} s): {message}")
                print(f"{kind}: {wrong[-1]}", flush=True)
    rows = [("Cases given", f"{answers.total()} of {len(everything)} that there are")]
    rows += [(kind, str(count)) for kind, count in sorted({"unclear": 0, **answers}.items())]
    return report.result(f"{answers.total():,} inputs", rows, wrong, started)
