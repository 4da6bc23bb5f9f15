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
import random
import re
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    root = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(root / "tests")]
    warnings.filterwarnings("ignore")
    from comfy_host import pack, standins

    standins.install()
    pack.load_pack()

import torch
from diffusers_host.pipelines import NamedPipeline
from life_events import ALL, EXACT, Events, Pair, Wrong, claims_on, made_of
from life_wrappers import MORE
from paceline import Compile, Precision, QuantizeInt8, ReuseSteps, optimize, restore
from paceline.optimizers.in_diffusers.host import host_of
from paceline.optimizers.qkv_fusion import SLOWER
from random_pipelines import distance, picture, small

NAMES = ("sd15", "sd15-img2img", "sd15-inpaint", "sd15-controlnet", "sdxl", "ssd1b", "flux", "sd3", "z-image")
ROUNDING, HALF, LOOSE = 1e-4, 0.1, 0.5


@dataclass
class Life(Events):
    """One life.

    Attributes:
        drawn: pictures.
        wrong: what was not right; "" if all was.
    """

    drawn: int = 0
    wrong: str = ""

    def live(self) -> Life:
        """Go through it."""
        chance = random.Random(self.seed)
        self.name = chance.choice(NAMES)
        self.pairs = [Pair(small(self.name), small(self.name))]
        self._steps = 9 if chance.random() < 0.1 else 2  # Reuse Steps does nothing in fewer than 8
        self._plain: dict[int, torch.Tensor] = {}
        try:
            self.optimize(chance)
            self._look()
            for _ in range(chance.randint(2, 4)):
                event = chance.choice((*ALL, *MORE))
                before = len(self.events)
                event(self, chance)
                if event not in (Events.optimize, Events.restore):
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
            self.pairs.clear()
            self.taken.clear()
            self.wrapped.clear()
            self._plain.clear()
        return self

    def _look(self) -> None:
        """Draw with each pipeline."""
        for number, pair in enumerate(self.pairs):
            on = claims_on(pair.ours.pipe)
            if number not in self._plain:
                self._plain[number] = self._draw(pair.twin)
            got, plain = self._draw(pair.ours), self._plain[number]
            if all(isinstance(one.settings, (*map(type, EXACT), Compile)) for one in on.values()):
                self._near(got, plain, self._rounding(ROUNDING), f"pipeline {number} from its plain twin")
                continue
            fresh = self._fresh(pair, on)
            rounds = (Precision, QuantizeInt8, ReuseSteps)
            exact = not any(isinstance(one.settings, rounds) for one in on.values())
            reuses = any(isinstance(one.settings, ReuseSteps) for one in on.values())
            limit = ROUNDING if exact else LOOSE if reuses else HALF
            self._near(got, self._draw(fresh), limit, f"pipeline {number} from one optimized now")

    def _fresh(self, pair: Pair, on: dict[tuple[str, str], Any]) -> NamedPipeline:
        parts = {name: copy.deepcopy(part) for name, part in pair.twin.pipe.components.items()}
        for part in parts.values():  # a wrapper in a copy still calls the original
            if self.wrapped and isinstance(part, torch.nn.Module):
                part.__dict__.pop("forward", None)
                part.__dict__.pop("_diffusers_hook", None)
        made = made_of(pair.twin, parts)
        for (name, _), claim in on.items():
            if name != "scheduler":
                optimize(made.pipe, claim.settings, components=[name])
        return made

    def _draw(self, named: NamedPipeline) -> torch.Tensor:
        self.drawn += 1
        return picture(named, 64 if self.name not in ("flux", "sd3", "z-image") else 0, self._steps)

    def _near(self, got: torch.Tensor, wanted: torch.Tensor, limit: float, what: str) -> None:
        moved = distance(got, wanted)
        if not moved <= limit:
            raise Wrong(f"{what}: {moved:.2g} (limit {limit})")

    def _end(self) -> None:
        for pair in self.pairs:
            restore(pair.ours.pipe)
            for _, name, part, _ in (one for one in self.taken if one[0] is pair):
                host = host_of(part)
                if host is not None and any(one.pipeline is pair.ours.pipe for one in host.claims):
                    raise Wrong(f"something is still on {name}, which was taken out")
        for number, pair in enumerate(self.pairs):
            if any(host_of(part) is not None for part in pair.ours.pipe.components.values()):
                for name in self.parts(pair):
                    restore(getattr(pair.ours.pipe, name))
                raise Wrong(f"something is still on pipeline {number}")
            for name in self.parts(pair):
                ours, twin = (one.pipe.components[name] for one in (pair.ours, pair.twin))
                for (path, a), b in zip(ours.named_modules(), twin.modules(), strict=True):
                    if type(a) is not type(b) or vars(a).keys() != vars(b).keys():
                        raise Wrong(f"{name}.{path} is not what it was: {vars(a).keys() ^ vars(b).keys()}")
                    kinds = {type(getattr(one, "processor", None)) for one in (a, b)}
                    if len(kinds) > 1:
                        raise Wrong(f"{name}.{path} has another processor than its twin: {kinds}")
            self._near(self._draw(pair.ours), self._draw(pair.twin), self._rounding(0.0), f"{number} restored")

    def _rounding(self, limit: float) -> float:
        """Return a limit, or a wide one where weights may have been changed while they were in few bits."""
        return HALF if any("Precision" in one or "Int8" in one for one in self.events) else limit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--json", type=Path, help="where to write what was found")
    given = parser.parse_args()
    SLOWER.clear()  # what Fuse QKV does on a card is tried on a processor
    lives, begun = [], time.perf_counter()
    for seed in range(given.first, given.first + given.count):
        life = Life(seed).live()
        lives.append(life)
        if life.wrong:
            print(f"seed {seed}, {life.name}: WRONG: {life.wrong}", *life.events, sep="\n    ", flush=True)
        if given.json:
            minutes = (time.perf_counter() - begun) / 60
            given.json.write_text(json.dumps({**found(lives), "minutes": minutes}, indent=1))
    print(json.dumps(found(lives), indent=1))
    return any(one.wrong for one in lives)


def found(lives: list[Life]) -> dict[str, Any]:
    """Return what came of lives, for a person and for docs/TRUST.md."""
    events = Counter(re.split(r"\(| of |: ", event)[0] for life in lives for event in life.events)
    rows = [
        ("Pipelines", f"{len(lives)}, from seed {lives[0].seed}"),
        ("pictures drawn", sum(one.drawn for one in lives)),
    ]
    rows += [(f"events: {name}", count) for name, count in events.most_common()]
    rows += [("of the calls of `optimize`, refused in one of our sentences", sum(one.refused for one in lives))]
    wrong = [f"seed {one.seed}: {one.wrong}" for one in lives if one.wrong]
    return {"tried": f"{len(lives)} pipelines", "rows": [*rows, ("wrong", len(wrong))], "wrong": wrong}


if __name__ == "__main__":
    sys.exit(main())
