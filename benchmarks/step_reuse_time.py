"""How much sooner whole sampling ends with Reuse Steps, and what it costs where no step is left out.

    python benchmarks/step_reuse_time.py [--quick] [--json PATH] [--threads N] [--only sd15|sdxl|flux] [--latents 64]
        [--rounds 3] [--solver euler] [--width 320] [--beside nothing|easycache]

With ``--beside easycache`` ComfyUI's EasyCache is measured too, both with two settings that are about equally near in
step_caches.py; with ``nothing`` nothing is left out.

Guidance 7 (Flux dev: 1; on processors it has 512 of its 3072 channels), the solvers as the node's users have them. The
weights are random, so what is left out is what this network allows, and says nothing about pictures: those are in
step_caches. *evaluations* of the network are counted beside the time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from functools import partial

import torch
from shared.measuring import arguments, measure, relative_error
from shared.nodes import Apply, core_cache, reused
from shared.record import Row, report
from shared.roof import Counted
from shared.stack_variants import Models, Variant, named

# isort: split
from comfy_host.in_process import sample

PLAIN = "plain model"
FLUX = "flux" if torch.cuda.is_available() else "flux-512"
LAYOUTS = {"sd15": ("SD1.5", 64, 7.0), "sdxl": ("SDXL", 128, 7.0), "flux": (FLUX, 128, 1.0)}
"""Each with the side of its latent and its guidance."""

STEPS = {"dpmpp_2m": 20, "euler": 30}
"""Solvers."""
NOTES = {
    "evaluations": "of the network in one run, each with its negative pass",
    "relative error": "L2 distance of the latents to those of the plain model",
    "weights": "random: what is left out is what this network allows; on trained ones see step_caches",
}

Changes = Mapping[str, tuple[Apply, ...]]
"""Names of rows with the nodes that each has."""

EASY = {one: core_cache("EasyCache", one) for one in (0.05, 0.1)}
BUDGETS: Changes = {f"budget {budget}": (reused(budget),) for budget in (0.05, 0.15)}
BESIDE: dict[str | None, Changes] = {
    None: BUDGETS,
    "nothing": {"again": (), "budget 0.0001, nothing left out": (reused(0.0001),)},
    "easycache": BUDGETS | {f"EasyCache {threshold}": (apply,) for threshold, apply in EASY.items()},
}


def measured(
    models: Models, width: int, side: int, guidance: float, sampler: str, changes: Changes, rounds: int
) -> Iterator[Row]:
    """Measure one solver at one size."""
    low = torch.bfloat16 if models.large else torch.float16
    model = models.of(low if torch.cuda.is_available() else torch.float32)
    changed = {name: Variant(name, nodes).of(model) for name, nodes in changes.items()}
    positive, negative = models.conditioning(1), models.conditioning(2)
    steps, scheduler = STEPS[sampler], "simple" if models.layout == FLUX else "normal"
    counted, evaluations = Counted(model.model.diffusion_model), dict.fromkeys(changes, 0.0)
    drawn: dict[str, torch.Tensor] = {}

    def run(name: str, side: int) -> None:
        counted.pictures = 0.0
        latent = models.latent(1, side)
        drawn[name] = sample(changed[name], positive, negative, latent, 1, steps, guidance, sampler, scheduler)
        evaluations[name] = counted.pictures / (1 if guidance == 1.0 else 2)

    for name in changes:  # small and quick, only so that nobody is first
        run(name, 8)
    what = f"{named(models.layout, width)}, {side * 8} x {side * 8}"
    work = f"{sampler}, {scheduler}, {steps} steps, guidance {guidance:g}: {what}"
    variants = {name: partial(run, name, side) for name in changes}
    for row in measure(work, variants, PLAIN, rounds=rounds, long=True):
        error = relative_error(drawn[row.name], drawn[PLAIN])
        row.quality = {"evaluations": evaluations[row.name], "relative_error": error}
        yield row


def more(parser: argparse.ArgumentParser) -> None:
    """Add what only this benchmark has."""
    parser.add_argument("--solver", choices=STEPS, help="measure this one only")
    parser.add_argument("--latents", type=int, nargs="+", metavar="SIDE", help="sides of the latents")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="samples of each variant")
    parser.add_argument("--width", type=int, metavar="N", help="channels of a UNet's first level; 320 is the real size")
    parser.add_argument("--beside", choices=[name for name in BESIDE if name], help="EasyCache, no gain")


def main() -> None:
    """Measure the solvers on both layouts, or the one that was asked for."""
    options = arguments(__doc__.splitlines()[0], only=tuple(LAYOUTS), more=more)
    width, rounds = options.width or (64 if options.quick else 320), options.rounds
    changes, rows = {PLAIN: (), **BESIDE[options.beside]}, list[Row]()
    with torch.inference_mode():
        for layout, side, guidance in [LAYOUTS[options.only]] if options.only else [LAYOUTS["sd15"], LAYOUTS["sdxl"]]:
            models = Models(layout, width, torch.cuda.is_available())
            for size in options.latents or [16 if options.quick else side]:
                for solver in [options.solver] if options.solver else STEPS:
                    rows += measured(models, width, size, guidance, solver, changes, rounds)
                    print(f"measured {rows[-1].work}", file=sys.stderr, flush=True)
    report(rows, PLAIN, options.json, NOTES)


if __name__ == "__main__":
    main()
