"""What watching for wrong numbers costs in one evaluation of a network that takes as long as given.

    python benchmarks/guard_time.py [--quick] [--json PATH] [--milliseconds 5 50]

The network is one matrix product after the other, and gives a latent of SDXL's size for 1024 x 1024 with guidance. A
row is a run of 30 evaluations, as a sampler makes them: the next begins while the one before may still be computing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from shared.measuring import arguments, measure, wait
from shared.record import Row, report
from shared.roof import place

# isort: split
from paceline.optimizers.guard import Guard

PLAIN, WATCHED, WAITED = "plain", "watched", "watched and waited for, as in diffusers"
EVALUATIONS = 30


def network(seconds: float) -> Callable[..., torch.Tensor]:
    """Return what computes matrix products for about so long."""
    device, dtype = place()
    side = 2048 if device.type == "cuda" else 256
    matrix = torch.randn(side, side, device=device).to(dtype) / side**0.5
    output, count = torch.randn(2, 4, 128, 128, device=device).to(dtype), 8

    def compute(*_: object) -> torch.Tensor:
        for _product in range(count):
            matrix @ matrix
        return output

    for _ in range(3):
        begun = time.perf_counter()
        compute()
        wait()
        count = max(1, round(count * seconds / (time.perf_counter() - begun)))
    return compute


def run(compute: Callable[..., torch.Tensor], guarded: bool, waiting: bool) -> None:
    """Make all evaluations of one run."""
    guard = Guard(("int8",))
    for _ in range(EVALUATIONS):
        if guarded:
            guard.watch(compute, (2, 4, 128, 128), compute, waiting)
        else:
            compute()
    if guarded:
        guard.settle()


def main() -> None:
    options = arguments(__doc__.splitlines()[0], more=_more)
    rows: list[Row] = []
    with torch.inference_mode():
        for milliseconds in options.milliseconds:
            compute = network(milliseconds / 1000)
            ways = {PLAIN: (False, False), WATCHED: (True, False), WAITED: (True, True)}
            variants = {name: partial(run, compute, *how) for name, how in ways.items()}
            work = f"{EVALUATIONS} evaluations of about {milliseconds:g} ms, output 2 x 4 x 128 x 128"
            rows += measure(work, variants, PLAIN, rounds=3 if options.quick else 7)
    report(rows, PLAIN, options.json)


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--milliseconds", type=float, nargs="+", default=[5.0, 50.0], metavar="MS")


if __name__ == "__main__":
    main()
