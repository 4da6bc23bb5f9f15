"""Random lives of diffusers pipelines: optimized and restored while other code copies, shares, moves and patches them.

    python tests/random_lives.py --first 0 --count 200

A life is right if after each of its events

- the picture is that of a plain twin, to which the same was done, optimized now for the first time;
- it is that of the plain twin itself, where everything on it promises rounding only;
- nothing is raised but what the plain twin raises too, and sentences of ours;

and if at its end, everything restored, the pipeline has the bits, attributes and processors of its twin.
"""

from __future__ import annotations

import argparse
import copy
import json
import pickle
import random
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    root = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(root / "testing"), str(root / "tests")]
    warnings.filterwarnings("ignore")
    from comfy_host import pack, standins

    standins.install()
    pack.load_pack()

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
    ScheduleOnCPU,
    TokenMerging,
    optimize,
    restore,
)
from paceline.core.errors import PacelineError
from paceline.optimizers.hosts.diffusers.host import host_of
from random_pipelines import distance, picture, small

NAMES = ("sd15", "sd15-img2img", "sd15-inpaint", "sd15-controlnet", "sdxl", "ssd1b", "flux", "sd3")
EXACT = (FuseQKV(), Attention("vanilla"), Attention("sdpa"), Attention("sdpa_math"))
COMPILED = Compile(backend="eager")
"""Rounds only, and takes seconds for each network: one call of ``optimize`` in twenty has it."""
OTHERS = (
    TokenMerging(method="merge", ratio=0.5), TokenMerging(method="kv_downsample", ratio=0.5), TokenMerging(ratio=0.6),
    Precision("bf16"), Precision("bf16", vae_dtype="fp32"), ReuseSteps(budget=0.1), ScheduleOnCPU(),
    QuantizeInt8(include="*"),
)  # fmt: skip
PARTS = ("unet", "transformer", "vae", "controlnet")
ROUNDING, HALF, LOOSE = 1e-4, 0.1, 0.5


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
class Life:
    """One life.

    Attributes:
        events: what has happened, in words.
        refused: sentences of ours.
        wrong: what was not right; "" if all was.
    """

    seed: int
    name: str = ""
    events: list[str] = field(default_factory=list)
    refused: int = 0
    drawn: int = 0
    wrong: str = ""

    def live(self) -> Life:
        """Go through it."""
        chance = random.Random(self.seed)
        self.name = chance.choice(NAMES)
        self._pairs = [Pair(small(self.name), small(self.name))]
        self._steps = 9 if chance.random() < 0.1 else 2  # Reuse Steps does nothing in fewer than 8
        self._plain: dict[int, torch.Tensor] = {}
        try:
            self._optimize(chance)
            self._look()
            for _ in range(chance.randint(2, 4)):
                event = chance.choice(EVENTS)
                before = len(self.events)
                event(self, chance)
                if event not in (Life._optimize, Life._restore):
                    self._plain.clear()
                if len(self.events) > before:
                    self._look()
            self._end()
        except Wrong as wrong:
            self.wrong = str(wrong)
        except Exception as error:  # noqa: BLE001 - whatever it is, plain pipelines do not raise it
            self.wrong = f"{type(error).__name__}: {str(error)[:300]}"
        finally:
            torch._dynamo.reset()
        return self

    def _parts(self, pair: Pair) -> list[str]:
        return [name for name in PARTS if isinstance(pair.ours.pipe.components.get(name), torch.nn.Module)]

    def _optimize(self, chance: random.Random) -> None:
        pair = chance.choice(self._pairs)
        pool = (*EXACT, *EXACT, *OTHERS) if chance.random() < 0.6 else EXACT
        asked: dict[type, Any] = {type(one): one for one in chance.sample(pool, chance.randint(1, 3))}
        whole = chance.random() < 0.6 or Precision in asked  # diffusers itself refuses parts of different dtypes
        if chance.random() < 0.05:
            asked[Compile] = COMPILED
        where = None if whole else [chance.choice(self._parts(pair))]
        target = pair.ours.pipe
        if where is not None and chance.random() < 0.3:
            target, where = getattr(target, where[0]), None
        self._say(f"optimize({type(target).__name__}, {', '.join(map(repr, asked.values()))}, components={where})")
        try:
            optimize(target, *asked.values(), components=where)
        except PacelineError:
            self.refused += 1

    def _restore(self, chance: random.Random) -> None:
        pair = chance.choice(self._pairs)
        self._say(f"restore({self._pairs.index(pair)})")
        restore(pair.ours.pipe)

    def _share(self, chance: random.Random) -> None:
        if len(self._pairs) > 1:
            return
        own, pair = chance.random() < 0.5, self._pairs[0]

        def second(named: NamedPipeline) -> NamedPipeline:
            parts = dict(named.pipe.components)
            if own:
                parts["scheduler"] = type(parts["scheduler"]).from_config(parts["scheduler"].config)
            return _made_of(named, parts)

        self._pairs.append(Pair(second(pair.ours), second(pair.twin)))
        self._say(f"a second pipeline with the same parts{', and a scheduler of its own' * own}")

    def _forget(self, chance: random.Random) -> None:
        if len(self._pairs) > 1:
            self._say("the first pipeline is gone")
            del self._pairs[0]

    def _copy(self, chance: random.Random) -> None:
        pair = chance.choice(self._pairs)
        name, way = chance.choice([*self._parts(pair), "scheduler"]), chance.choice(("deepcopy", "pickle"))
        self._say(f"copied by {way}: {name} of {self._pairs.index(pair)}")

        def change(pipe: Any) -> None:
            part = getattr(pipe, name)
            made = copy.deepcopy(part) if way == "deepcopy" else pickle.loads(pickle.dumps(part))
            if host_of(made) is not None:
                raise Wrong("a copy has a host")
            pipe.register_modules(**{name: made})

        pair.both(change)

    def _scale(self, chance: random.Random) -> None:
        pair = chance.choice(self._pairs)
        name, by = chance.choice(self._parts(pair)), chance.choice((0.5, 0.8, 1.1))
        self._say(f"weights multiplied: {name} of {self._pairs.index(pair)} by {by}")

        def change(pipe: Any) -> None:
            with torch.no_grad():
                for parameter in getattr(pipe, name).parameters():
                    parameter.mul_(by)

        pair.both(change)

    def _load(self, chance: random.Random) -> None:
        pair = chance.choice(self._pairs)
        name = chance.choice(self._parts(pair))
        weights = {key: value * 0.9 for key, value in getattr(pair.twin.pipe, name).state_dict().items()}
        self._say(f"weights loaded: {name} of {self._pairs.index(pair)}")
        pair.both(lambda pipe: getattr(pipe, name).load_state_dict(weights))

    def _move(self, chance: random.Random) -> None:
        pair, dtype = chance.choice(self._pairs), chance.choice((torch.float64, torch.float32))
        self._say(f"pipe.to({dtype})")
        if self._has(Precision, QuantizeInt8):  # the first converts by itself, and torchao has no float64
            self.events.pop()
            return
        pair.both(lambda pipe: pipe.to(dtype))

    def _processors(self, chance: random.Random) -> None:
        pair = chance.choice(self._pairs)
        name = chance.choice([one for one in self._parts(pair) if one != "transformer"])
        way = chance.choice(("AttnProcessor2_0", "AttnProcessor", "default", "fuse", "unfuse", "sliced"))
        if way in ("fuse", "unfuse") and (name != "unet" or self.name == "ssd1b"):
            return
        self._say(f"other attention processors of {name}: {way}")

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

    def _say(self, event: str) -> None:
        self.events.append(event)

    def _has(self, *kinds: type) -> bool:
        return any(isinstance(one.settings, kinds) for pair in self._pairs for one in _on(pair.ours.pipe).values())

    def _look(self) -> None:
        """Draw with each pipeline."""
        for number, pair in enumerate(self._pairs):
            on = _on(pair.ours.pipe)
            if number not in self._plain:
                self._plain[number] = self._draw(pair.twin)
            got, plain = self._draw(pair.ours), self._plain[number]
            if all(isinstance(one.settings, (*map(type, EXACT), Compile, ScheduleOnCPU)) for one in on.values()):
                self._near(got, plain, ROUNDING, f"pipeline {number} from its plain twin")
                continue
            fresh = self._fresh(pair, on)
            rounds = (Precision, QuantizeInt8, ReuseSteps)
            exact = not any(isinstance(one.settings, rounds) for one in on.values())
            reuses = any(isinstance(one.settings, ReuseSteps) for one in on.values())
            limit = ROUNDING if exact else LOOSE if reuses else HALF
            self._near(got, self._draw(fresh), limit, f"pipeline {number} from one optimized now")

    def _fresh(self, pair: Pair, on: dict[tuple[str, str], Any]) -> NamedPipeline:
        parts = {name: copy.deepcopy(part) for name, part in pair.twin.pipe.components.items()}
        made = _made_of(pair.twin, parts)
        for (name, _), claim in on.items():
            if name != "scheduler":
                optimize(made.pipe, claim.settings, components=[name])
        return made

    def _draw(self, named: NamedPipeline) -> torch.Tensor:
        self.drawn += 1
        return picture(named, 64 if self.name not in ("flux", "sd3") else 0, self._steps)

    def _near(self, got: torch.Tensor, wanted: torch.Tensor, limit: float, what: str) -> None:
        moved = distance(got, wanted)
        if not moved <= limit:
            raise Wrong(f"{what}: {moved:.2g} (limit {limit})")

    def _end(self) -> None:
        for pair in self._pairs:
            restore(pair.ours.pipe)
        for number, pair in enumerate(self._pairs):
            if any(host_of(part) is not None for part in pair.ours.pipe.components.values()):
                for name in self._parts(pair):
                    restore(getattr(pair.ours.pipe, name))
                raise Wrong(f"something is still on pipeline {number}")
            for name in self._parts(pair):
                ours, twin = (one.pipe.components[name] for one in (pair.ours, pair.twin))
                for (path, a), b in zip(ours.named_modules(), twin.modules(), strict=True):
                    if type(a) is not type(b) or vars(a).keys() != vars(b).keys():
                        raise Wrong(f"{name}.{path} is not what it was: {vars(a).keys() ^ vars(b).keys()}")
                    kinds = {type(getattr(one, "processor", None)) for one in (a, b)}
                    if len(kinds) > 1:
                        raise Wrong(f"{name}.{path} has another processor than its twin: {kinds}")
            rounded = any("Precision" in one or "Int8" in one for one in self.events)  # weights changed in few bits
            self._near(self._draw(pair.ours), self._draw(pair.twin), HALF if rounded else 0.0, f"{number} restored")


class Wrong(Exception):
    """What was not right."""


def _made_of(named: NamedPipeline, parts: dict[str, Any]) -> NamedPipeline:
    """Return a pipeline of the same kind with other parts."""
    config = {"requires_safety_checker": False} if "requires_safety_checker" in named.pipe.config else {}
    config |= {"add_watermarker": False} if named.name in ("sdxl", "ssd1b") else {}
    pipe = type(named.pipe)(**parts, **config)
    pipe.set_progress_bar_config(disable=True)
    return NamedPipeline(named.name, pipe, named.about, named.arguments)


def _on(pipe: Any) -> dict[tuple[str, str], Any]:
    """Return the claims that are there, by part and kind."""
    found: dict[tuple[str, str], Any] = {}
    for name, part in pipe.components.items():
        host = host_of(part)
        for claim in () if host is None else host.claims:
            if host is not None and claim.technique.kind not in host.left_out:
                found[name, claim.technique.kind] = claim
    return found


EVENTS = (
    Life._optimize, Life._optimize, Life._restore, Life._share, Life._forget, Life._copy, Life._copy, Life._scale,
    Life._load, Life._move, Life._processors, Life._processors,
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--json", type=Path, help="where to write what was found")
    given = parser.parse_args()
    lives, begun = [], time.perf_counter()
    for seed in range(given.first, given.first + given.count):
        life = Life(seed).live()
        lives.append(life)
        if life.wrong:
            print(f"seed {seed}, {life.name}: WRONG: {life.wrong}", *life.events, sep="\n    ", flush=True)
        if given.json:
            minutes = (time.perf_counter() - begun) / 60
            given.json.write_text(json.dumps({**found(lives), "first": given.first, "minutes": minutes}, indent=1))
    print(json.dumps(found(lives), indent=1))
    return any(one.wrong for one in lives)


def found(lives: list[Life]) -> dict[str, Any]:
    """Return what came of lives, for a person and for docs/TRUST.md."""
    events = Counter(re.split(r"\(| of |: ", event)[0] for life in lives for event in life.events)
    return {
        "pipelines": len(lives),
        "pictures": sum(one.drawn for one in lives),
        "refusals": sum(one.refused for one in lives),
        "events": dict(events.most_common()),
        "wrong": [{"seed": one.seed, "problems": [one.wrong]} for one in lives if one.wrong],
    }


if __name__ == "__main__":
    sys.exit(main())
