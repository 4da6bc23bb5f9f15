"""What happens to the pipelines of a random life: ``optimize`` and ``restore``, and what other code does to parts."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from diffusers.models.attention_processor import AttnProcessor, AttnProcessor2_0
from diffusers_host.pipelines import NamedPipeline
from paceline import (
    Attention,
    Compile,
    FuseQKV,
    Precision,
    QuantizeInt8,
    ReuseSteps,
    TokenMerging,
    optimize,
    restore,
)
from paceline.optimizers.core.errors import PacelineError
from paceline.optimizers.in_diffusers.host import host_of

EXACT = (FuseQKV(), Attention("vanilla"), Attention("sdpa"), Attention("sdpa_math"))
COMPILED = Compile(backend="eager")
"""Rounds only, and takes seconds for each network: one call of ``optimize`` in twenty has it."""
OTHERS = (
    TokenMerging(method="merge", ratio=0.5), TokenMerging(method="kv_downsample", ratio=0.5), TokenMerging(ratio=0.6),
    Precision("bf16"), Precision("bf16", vae_dtype="fp32"), ReuseSteps(budget=0.1),
    QuantizeInt8(include="*"),
)  # fmt: skip
PARTS = ("unet", "transformer", "vae", "controlnet")


@dataclass
class Pair:
    """A pipeline with ours, and its plain twin."""

    ours: NamedPipeline
    twin: NamedPipeline

    def both(self, change: Callable[[Any], Any]) -> None:
        """Do the same to both; the twin goes first, so that what it cannot do is not tried with ours."""
        change(self.twin.pipe)
        change(self.ours.pipe)


@dataclass
class Events:
    """Pipelines with their twins, and what can happen to them.

    Attributes:
        events: what has happened, in words.
        refused: sentences of ours.
        wrapped: what takes off what others have put around a ``forward``.
        taken: parts that were taken out of a pipeline and of its twin.
    """

    seed: int
    name: str = ""
    events: list[str] = field(default_factory=list)
    refused: int = 0
    pairs: list[Pair] = field(default_factory=list)
    wrapped: list[Callable[[], None]] = field(default_factory=list)
    taken: list[tuple[Pair, str, Any, Any]] = field(default_factory=list)

    def parts(self, pair: Pair) -> list[str]:
        return [name for name in PARTS if isinstance(pair.ours.pipe.components.get(name), torch.nn.Module)]

    def optimize(self, chance: random.Random) -> None:
        pair = chance.choice(self.pairs)
        pool = (*EXACT, *EXACT, *OTHERS) if chance.random() < 0.6 else EXACT
        asked: dict[type, Any] = {type(one): one for one in chance.sample(pool, chance.randint(1, 3))}
        whole = chance.random() < 0.6 or Precision in asked  # diffusers itself refuses parts of different dtypes
        if chance.random() < 0.05:
            asked[Compile] = COMPILED
        where = None if whole else [chance.choice(self.parts(pair))]
        target = pair.ours.pipe
        if where is not None and chance.random() < 0.3:
            target, where = getattr(target, where[0]), None
        self.say(f"optimize({type(target).__name__}, {', '.join(map(repr, asked.values()))}, components={where})")
        try:
            optimize(target, *asked.values(), components=where)
        except PacelineError:
            self.refused += 1

    def restore(self, chance: random.Random) -> None:
        pair = chance.choice(self.pairs)
        self.say(f"restore({self.pairs.index(pair)})")
        restore(pair.ours.pipe)

    def share(self, chance: random.Random) -> None:
        if len(self.pairs) > 1:
            return
        own, pair = chance.random() < 0.5, self.pairs[0]

        def second(named: NamedPipeline) -> NamedPipeline:
            parts = dict(named.pipe.components)
            if own:
                parts["scheduler"] = type(parts["scheduler"]).from_config(parts["scheduler"].config)
            return made_of(named, parts)

        self.pairs.append(Pair(second(pair.ours), second(pair.twin)))
        self.say(f"a second pipeline with the same parts{', and a scheduler of its own' * own}")

    def forget(self, chance: random.Random) -> None:
        if len(self.pairs) > 1:
            self.say("the first pipeline is gone")
            del self.pairs[0]

    def copy(self, chance: random.Random) -> None:
        pair = chance.choice(self.pairs)
        name, way = chance.choice([*self.parts(pair), "scheduler"]), chance.choice(("deepcopy", "pickle"))
        if self.wrapped:  # a wrapper in a copy still calls the original
            return
        self.say(f"copied by {way}: {name} of {self.pairs.index(pair)}")
        if name != "scheduler" and self.has(Precision):  # a copy is plain, and diffusers refuses parts of two dtypes
            self.events.pop()
            return

        def change(pipe: Any) -> None:
            part = getattr(pipe, name)
            made = copy.deepcopy(part) if way == "deepcopy" else pickle.loads(pickle.dumps(part))
            if host_of(made) is not None:
                raise Wrong("a copy has a host")
            pipe.register_modules(**{name: made})

        pair.both(change)

    def scale(self, chance: random.Random) -> None:
        pair = chance.choice(self.pairs)
        name, by = chance.choice(self.parts(pair)), chance.choice((0.5, 0.8, 1.1))
        self.say(f"weights multiplied: {name} of {self.pairs.index(pair)} by {by}")
        if self.has(QuantizeInt8):  # nobody can multiply torchao's weights in place
            self.events.pop()
            return

        def change(pipe: Any) -> None:
            with torch.no_grad():
                for parameter in getattr(pipe, name).parameters():
                    parameter.mul_(by)

        pair.both(change)

    def load(self, chance: random.Random) -> None:
        pair = chance.choice(self.pairs)
        name = chance.choice(self.parts(pair))
        weights = {key: value * 0.9 for key, value in getattr(pair.twin.pipe, name).state_dict().items()}
        assign = chance.random() < 0.5
        self.say(f"weights {'replaced' if assign else 'loaded'}: {name} of {self.pairs.index(pair)}")
        pair.both(lambda pipe: getattr(pipe, name).load_state_dict({**weights}, assign=assign))

    def move(self, chance: random.Random) -> None:
        pair, dtype = chance.choice(self.pairs), chance.choice((torch.float64, torch.float32))
        self.say(f"pipe.to({dtype})")
        if self.has(Precision, QuantizeInt8):  # the first converts by itself, and torchao has no float64
            self.events.pop()
            return
        pair.both(lambda pipe: pipe.to(dtype))

    def processors(self, chance: random.Random) -> None:
        pair = chance.choice(self.pairs)
        name = chance.choice([one for one in self.parts(pair) if one != "transformer"])
        way = chance.choice(("AttnProcessor2_0", "AttnProcessor", "default", "fuse", "unfuse", "sliced"))
        if way in ("fuse", "unfuse") and (name != "unet" or self.name == "ssd1b"):
            return
        self.say(f"other attention processors of {name}: {way}")

        def change(pipe: Any) -> None:
            part = getattr(pipe, name)
            if way.startswith("Attn"):
                part.set_attn_processor((AttnProcessor2_0 if way.endswith("0") else AttnProcessor)())
            elif way == "default":
                part.set_default_attn_processor()
            elif way == "sliced" and hasattr(part, "set_attention_slice"):
                part.set_attention_slice(1)
            elif way == "fuse":
                part.fuse_qkv_projections()
            elif way == "unfuse" and getattr(part, "original_attn_processors", None) is not None:
                part.unfuse_qkv_projections()

        try:
            change(pair.twin.pipe)
        except Exception:  # noqa: BLE001 - not for this model
            self.events.pop()
            return
        change(pair.ours.pipe)

    def say(self, event: str) -> None:
        self.events.append(event)

    def has(self, *kinds: type) -> bool:
        return any(isinstance(one.settings, kinds) for pair in self.pairs for one in claims_on(pair.ours.pipe).values())


class Wrong(Exception):
    """What was not right."""


def made_of(named: NamedPipeline, parts: dict[str, Any]) -> NamedPipeline:
    """Return a pipeline of the same kind with other parts."""
    config = {"requires_safety_checker": False} if "requires_safety_checker" in named.pipe.config else {}
    config |= {"add_watermarker": False} if named.name in ("sdxl", "ssd1b") else {}
    pipe = type(named.pipe)(**parts, **config)
    pipe.set_progress_bar_config(disable=True)
    return NamedPipeline(named.name, pipe, named.about, named.arguments)


def claims_on(pipe: Any) -> dict[tuple[str, str], Any]:
    """Return the claims that are there, by part and kind."""
    found: dict[tuple[str, str], Any] = {}
    for name, part in pipe.components.items():
        host = host_of(part)
        for claim in () if host is None else host.claims:
            if host is not None and claim.technique.kind not in host.left_out:
                found[name, claim.technique.kind] = claim
    return found


ALL = (
    Events.optimize, Events.optimize, Events.restore, Events.share, Events.forget, Events.copy, Events.copy,
    Events.scale, Events.load, Events.move, Events.processors, Events.processors,
)  # fmt: skip
