"""What Apply ToMe makes of the time of a picture, beside no reduction, ComfyUI's own node and fewer steps.

    python benchmarks/token_reduction.py [--quick] [--json PATH] [--threads N] [--only sd15 sdxl]
                                         [--latents 64 96 128] [--rounds 2] [--variants quality ...]

UNets of real size, random weights. Calls of the network are timed one by one, variants in turn: of a preset a full
step, which computes attention both ways, and one after it, which adds the difference. From these follows the time of a
picture, by how many of each it has; of fewer steps, from the plain step. *not added* leaves out the same tokens and
neither keeps nor adds a difference: what that costs is between the two.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import cache, partial
from typing import Any

import torch
from shared.measuring import arguments, wait
from shared.nodes import core_tome, tome
from shared.record import Row, keep, report

# isort: split
from comfy_host.in_process import random_conditioning, sample
from paceline.optimizers.in_comfyui.run.stack import stack_of
from paceline.optimizers.token_merging.full_steps import FullSteps
from paceline.optimizers.token_merging.kv_downsample import fewer_keys
from paceline.optimizers.token_merging.tome_settings import PRESETS
from shared.unets import unet

NONE, CORE, NOT_ADDED = "no reduction", "ComfyUI TomePatchModel 0.5", "preset {}, not added"
MERGED = "merge 0.5"
VARIANTS = (NONE, CORE, *(f"preset {preset}" for preset in PRESETS), *map(NOT_ADDED.format, PRESETS))
FEWER = {20: (17, 15, 13), 8: (7, 6, 5)}
"""Steps of the pictures, and fewer ones."""
UNETS = {"sd15": "SD1.5", "sdxl": "SDXL"}
SECOND_LEVEL = {"sd15": "2", "sdxl": "4"}
"""Presets reduce the two finest levels where they keep the difference."""
NOTES = {
    "time": "of all calls of the network for one picture without guidance, from the times of single calls",
    "step seconds median, full step seconds median": "one call of the network; a full one computes attention both ways",
    "adding": "how much longer a step takes that adds a difference than one that leaves out the same tokens without",
    "weights": "random",
}
Draw = Callable[[Any, int], object]
"""Samples with a MODEL so many steps."""


def apply(model: Any, name: str, kind: str) -> Any:
    """Return ``model``, of a key of ``SECOND_LEVEL``, with the node that a variant stands for."""
    if name == NONE:
        return model
    if name == CORE:
        return core_tome(0.5)(model)
    preset, _, not_added = name.removeprefix("preset ").partition(", ")
    if not not_added:
        return tome(**({"method": "merge", "ratio": 0.5} if name == MERGED else {"preset": preset}))(model)
    settings = {key: value for key, value in PRESETS[preset].items() if key != "alone"}
    found = tome(**settings | {"residual": "off", "max_downsample": SECOND_LEVEL[kind]})(model)
    policy = policy_of(found)

    def call(*given: Any, made: Any = policy.call) -> Any:
        tokens = made(*given)
        tokens.kept.keys = even_keys
        return tokens

    policy.call = call
    return found


@cache
def even_keys(height: int, width: int, ratio: float, device: Any, even: bool) -> Any:
    """Return the keys that are left where a difference is added."""
    return fewer_keys(height, width, ratio, device, even=True)


def policy_of(model: Any) -> Any:
    """Return what Apply ToMe decides in a MODEL; None without it."""
    technique = stack_of(model).find("token_merging")
    return technique and technique.policy


def timed(model: Any, seconds: list[float]) -> Any:
    """Return a MODEL that notes the time of each call of its network, with all that was put around it."""

    def call(network: Any, given: dict[str, Any]) -> Any:
        wait()
        begun = time.perf_counter()
        found = network(given["input"], given["timestep"], **given["c"])
        wait()
        seconds.append(time.perf_counter() - begun)
        return found

    clone = model.clone()
    clone.set_model_unet_function_wrapper(call)
    return clone


class Times:
    """The latest calls of one variant in each round: plain ones, or full ones and those after them."""

    def __init__(self, model: Any) -> None:
        self.model, self.policy = model, policy_of(model)
        self.keeps = self.policy is not None and self.policy.settings.keeps
        self.full: list[float] = []
        self.step: list[float] = []
        self.held = 0

    def run(self, draw: Draw) -> None:
        """Draw with the fewest steps that have one of each; the first two are full."""
        seconds: list[float] = []
        draw(timed(self.model, seconds), 3 if self.keeps else 1)
        self.step.append(seconds[-1])
        if self.keeps:
            outcome = self.policy.kept
            if (outcome.full, outcome.added) != (2, 1):
                raise SystemExit(f"not two full calls and one after them: {outcome.full} and {outcome.added}")
            self.full.append(seconds[1])
            self.held = self.policy.kept.most

    def pictures(self, steps: int) -> tuple[list[float], int]:
        """Return the seconds of a picture in each round, and how many of its steps are full."""
        if not self.keeps:
            return [steps * one for one in self.step], 0
        full = FullSteps([*range(steps, 0, -1), 0], self.policy.settings.ratio)
        if not full.pay:
            raise SystemExit(f"In {steps} steps presets keep no difference: ask for more.")
        count = len(full.levels)
        both = zip(self.full, self.step, strict=True)
        return [count * whole + (steps - count) * step for whole, step in both], count


def measured(where: str, kind: str, model: Any, names: tuple[str, ...], draw: Draw, options: Any) -> list[Row]:
    """Time the variants of one model, and return the rows of its pictures."""
    times = {name: Times(apply(model, name, kind)) for name in names}
    for one in times.values() if torch.cuda.is_available() else (times[NONE],):
        Times(one.model).run(draw)  # brings the weights, and chooses kernels
    order = list(times)
    for _ in range(options.rounds):
        for name in order:
            times[name].run(draw)
        order = [*order[1:], order[0]]
    rows: list[Row] = []
    for steps in FEWER:
        row = partial(_row, f"{steps} steps: {where}", times[NONE])
        rows += [row(name, one, steps) for name, one in times.items()]
        rows += [row(f"{fewer} steps", times[NONE], fewer) for fewer in FEWER[steps]]
    for found in rows:
        without = times.get(NOT_ADDED.format(found.name.removeprefix("preset ")))
        if without is not None and found.quality.get("full_steps"):
            found.quality["adding"] = found.quality["step_seconds_median"] / statistics.median(without.step) - 1
    keep(map(asdict, rows), NONE, NOTES)
    return rows


def _row(work: str, plain: Times, name: str, one: Times, steps: int) -> Row:
    pictures, full = one.pictures(steps)
    base, _ = plain.pictures(int(work.split()[0]))
    quality = {"step_seconds_median": statistics.median(one.step)}
    if full:
        quality |= {"full_step_seconds_median": statistics.median(one.full), "full_steps": full}
        quality["held_bytes"] = one.held
    speedup = statistics.median(of / own for of, own in zip(base, pictures, strict=True))
    spread = statistics.median(pictures), min(pictures), max(pictures)
    return Row(name, work, *spread, speedup=speedup, quality=quality, rounds=len(pictures))


def of_unet(kind: str, names: tuple[str, ...], options: Any) -> list[Row]:
    """Measure one UNet at the sizes that were asked for."""
    on_gpu, width = torch.cuda.is_available(), 64 if options.quick else 320
    model = unet(UNETS[kind], width)
    words, rows = random_conditioning(model), []
    for side in options.latents or ([32] if options.quick else [64, 96, 128] if kind == "sd15" else [128]):
        latent = torch.zeros(2 if on_gpu else 1, 4, side, side)

        def draw(patcher: Any, steps: int, latent: torch.Tensor = latent) -> object:
            return sample(patcher, words, words, latent, steps=steps, cfg=1.0)

        where = f"{UNETS[kind]}, {width} channels, {8 * side} x {8 * side}, batch {len(latent)}"
        rows += measured(where, kind, model, names, draw, options)
    return rows


def chosen(parts: list[str] | None, usual: tuple[str, ...]) -> tuple[str, ...]:
    """Return the baseline and the variants with one of ``parts`` in their names; else the usual ones."""
    known = tuple(dict.fromkeys((*usual, MERGED)))
    return tuple(name for name in known if name == NONE or any(one in name for one in parts)) if parts else usual


def main() -> None:
    """Time what was asked for."""
    options = arguments(__doc__.splitlines()[0], more=_more)
    names, rows = chosen(options.variants, VARIANTS), []
    options.rounds = options.rounds or (7 if torch.cuda.is_available() else 2)
    with torch.inference_mode():
        for kind in options.only or UNETS:
            rows += of_unet(kind, names, options)
            print(f"measured {rows[-1].work}", file=sys.stderr, flush=True)
    report(rows, NONE, options.json, NOTES)


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", choices=tuple(UNETS), metavar="NAME", help=", ".join(UNETS))
    parser.add_argument("--latents", type=int, nargs="+", metavar="SIDE", help="sides of the UNets' latents")
    parser.add_argument("--rounds", type=int, metavar="N", help="samples of each variant")
    parser.add_argument("--variants", nargs="+", metavar="PART", help="those with this in their names")


if __name__ == "__main__":
    main()
