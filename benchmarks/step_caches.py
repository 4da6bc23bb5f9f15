"""How near do pictures stay with Reuse Steps, with other step caches and with fewer steps, at as many evaluations?

    python benchmarks/step_caches.py [--quick] [--json PATH] [--threads N] [--only MODEL]
                                     [--few]
                                     [--solvers NAME ...] [--budgets SHARE ...] [--left N ...] [--pairs N]
                                     [--guidance SCALE] [--rivals [NAME ...]] [--earlier PATH]

All draw the same pairs of held-out caption and seed with a trained model (shared/trained.py) in ComfyUI: Reuse Steps,
ComfyUI's own EasyCache and LazyCache, DeepCache (https://arxiv.org/abs/2312.00858) on UNets, Spectrum
(shared/spectrum.py), and the plain model with less work: fewer steps, and late levels left out (shared/controls.py).
Nothing is timed: work is counted in evaluations of the network. *gain* and *gain late* hold each against these two, at
as many evaluations. With ``--json`` a plot is drawn beside the file. ``--few`` is of few steps, without rivals: some
captions with several seeds, and the plain model with less work only where a step was left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import torch
from pages.plots import plot
from shared.controls import add_pairs, fewer_steps, held_out, late_levels, others, tenths
from shared.distances import NOTES, Curve, Pairs, in_full, in_short, of_runs, over, promised
from shared.measuring import arguments
from shared.nodes import Apply, core_cache, reused, tome
from shared.record import Row, collected, report
from shared.roof import operations
from shared.spectrum import spectrum
from shared.trained import (
    EMOJI,
    FLOW_SOLVERS,
    ICONS,
    ICONS_64,
    ICONS_DISTILLED,
    ICONS_LUMINA,
    ICONS_VIDEO,
    SOLVERS,
    Bench,
    Solver,
    about_weights,
)

LONG = (Solver("euler", "simple", 25), Solver("euler", "simple", 50))
"""Schedules as long as today's models without distillation have them."""
WITNESSES = {
    "icons": (ICONS, (*SOLVERS, *LONG)),
    "icons-64": (ICONS_64, (SOLVERS[1], LONG[1])),
    "icons-lumina": (ICONS_LUMINA, (*FLOW_SOLVERS, *LONG)),
    "icons-video": (ICONS_VIDEO, (*FLOW_SOLVERS, *LONG)),
}
"""Each trained model with the solvers that it is sampled with."""


def _few(scheduler: str, *steps: int) -> tuple[Solver, ...]:
    named = ("euler", scheduler), ("dpmpp_2m", "karras"), ("dpmpp_2m", scheduler), ("res_multistep", scheduler)
    return tuple(Solver(*one, number) for number in steps for one in named)


FEW = {
    "emoji": (EMOJI, _few("normal", 6, 8, 10, 12, 15, 20, 30)),
    "icons": (ICONS, _few("normal", 6, 8, 10, 12, 15, 20, 30)),
    "icons-distilled": (ICONS_DISTILLED, _few("simple", 6, 8, 10, 12, 15)),
    "icons-lumina": (ICONS_LUMINA, _few("simple", 6, 8, 10, 12, 15)),
    "icons-video": (replace(ICONS_VIDEO, guidance=1.0), _few("simple", 6, 8, 10, 12, 15)),
}
"""The same for few steps, and for as many as others are drawn with where seeds look alike."""
FEW_BUDGETS = (0.05, 0.15)
FEW_CAPTIONS = 4
QUICK = (SOLVERS[0].name, FLOW_SOLVERS[0].name)
BUDGETS = (0.02, 0.05, 0.15, 0.3)
THRESHOLDS = {"EasyCache": (0.05, 0.1, 0.2), "LazyCache": (0.05, 0.2)}
RIVALS = (*THRESHOLDS, "DeepCache", "Spectrum", "bf16")
TOKENS = "Apply ToMe"
EVERY = (2,)
GROWTHS = (0.0, 0.75)
OUTER = 2
"""Blocks at each end of the UNet that DeepCache always runs: those of its first skip branch."""
OF_RIVALS = {
    "EasyCache, LazyCache": "ComfyUI's own nodes with this reuse_threshold (default 0.2), all else as they come",
    "DeepCache": "every n-th step whole; between them two blocks at each end, counted by their share of the operations",
    "Spectrum": "written from the paper, with its growth of the window (authors' default 0.75); forecasts what the "
    "network returns",
    "Apply ToMe": "preset quality, on top of Reuse Steps; evaluations by their share of the operations, not by a clock",
}


Earlier = Mapping[tuple[str, str], Row]
"""Rows by work and name."""


def deep_cache(bench: Bench, every: int, outer_share: float) -> Apply:
    """Return what keeps the UNet's inner blocks of every n-th evaluation for those that follow (DeepCache).

    ``outer_share``: of the operations, what the outer blocks have.
    """
    from comfy.ldm.modules.diffusionmodules import openaimodel
    from comfy.patcher_extension import WrappersMP

    network, run_block = bench.patcher.model.diffusion_model, openaimodel.forward_timestep_embed
    outer = {*network.input_blocks[:OUTER], *network.output_blocks[-OUTER:]}

    def apply(patcher: Any) -> Any:
        cached: dict[Any, Any] = {}
        calls = 0

        def forward(executor: Callable[..., Any], x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            whole, calls = calls % every == 0, calls + 1

            def block(module: Any, *given: Any, **named: Any) -> Any:
                if whole or module in outer:
                    cached[module] = run_block(module, *given, **named)
                return cached[module]

            if not whole:
                bench.counted.pictures -= (1 - outer_share) * len(x)
            with patch.object(openaimodel, "forward_timestep_embed", block):
                return executor(x, *args, **kwargs)

        clone = patcher.clone()
        clone.add_wrapper_with_key(WrappersMP.DIFFUSION_MODEL, "deep_cache", forward)
        return clone

    return apply


def with_tokens(bench: Bench, budget: float) -> Apply:
    """Return what puts Apply ToMe on top of Reuse Steps; evaluations count by their share of the plain operations."""
    from comfy.patcher_extension import WrappersMP

    reuse, merge = reused(budget), tome(preset="quality")
    (prompt, seed), steps, counted = bench.pairs[0], bench.solver.steps, bench.counted
    whole = operations(lambda: bench.sample(bench.patcher, prompt, seed, 1)) / bench.passes
    counted.pictures = 0.0
    reduced = operations(lambda: bench.sample(merge(reuse(bench.patcher)), prompt, seed, steps))
    share = reduced / counted.pictures / whole

    def count(executor: Callable[..., Any], x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        counted.pictures -= (1 - share) * len(x)
        return executor(x, *args, **kwargs)

    def apply(patcher: Any) -> Any:
        clone = merge(reuse(patcher))
        clone.add_wrapper_with_key(WrappersMP.DIFFUSION_MODEL, "tokens", count)
        return clone

    return apply


def rivals(bench: Bench) -> Iterator[tuple[str, Apply]]:
    """Yield what a user could take in the place of Reuse Steps, by name."""
    for name, thresholds in THRESHOLDS.items():
        yield from ((f"{name} {threshold:g}", core_cache(name, threshold)) for threshold in thresholds)
    if hasattr(bench.patcher.model.diffusion_model, "output_blocks"):
        draw = partial(bench.sample, prompt=bench.pairs[0][0], seed=0)
        whole = operations(lambda: draw(bench.patcher, steps=1))
        both = operations(lambda: draw(deep_cache(bench, 2, 1.0)(bench.patcher), steps=2))
        yield from ((f"DeepCache {every}", deep_cache(bench, every, both / whole - 1)) for every in EVERY)
    if bench.solver.evaluations == 1:
        yield from ((f"Spectrum {growth:g}", spectrum(bench, growth)) for growth in GROWTHS)


def measure(
    bench: Bench, budgets: Sequence[float], wanted: Sequence[str], given: Sequence[int], earlier: Earlier
) -> Iterator[Row]:
    """Yield the rows of one solver; the notes say what their numbers are."""

    def tried() -> Iterator[tuple[str, Apply, float | None]]:
        yield from ((f"Reuse Steps {one:g}", reused(one), one) for one in budgets)
        yield from ((name, apply, None) for name, apply in rivals(bench) if name.split()[0] in wanted)
        for one in budgets if TOKENS in wanted else ():
            yield f"Reuse Steps {one:g}, {TOKENS} quality", with_tokens(bench, one), one

    yield from judged(bench, tried(), given, earlier)
    if "bf16" in wanted:
        yield from (Row(name, bench.work, quality=numbers) for name, numbers in others(bench))


def row(bench: Bench, name: str, numbers: dict[str, float], pairs: Pairs) -> Row:
    return Row(name, bench.work, quality=numbers, pairs=in_short(pairs))


def plain(
    bench: Bench, curves: tuple[Curve, ...], given: Sequence[int] = (), earlier: Earlier = MappingProxyType({})
) -> Iterator[Row]:
    """Yield the rows of the plain model with less work, and add them to its curves.

    Of one curve with fewer steps, of two without late levels too; ``given``: how many are left, tenths of all without;
    ``earlier``: rows that are there.
    """
    ways = ((fewer_steps, "{} steps"), (late_levels, f"{{}} of {bench.solver.steps} levels"))
    for curve, (drawn, name) in zip(curves, ways, strict=False):
        for left in given or tenths(bench.solver.steps):
            found = earlier.get((bench.work, name.format(left)))
            if found is None and (new := drawn(bench, left)) is not None:
                found = row(bench, name.format(left), *new)
            if found is not None:
                curve.add(found.quality, in_full(found.pairs))
                yield found


def judged(
    bench: Bench,
    tried: Iterable[tuple[str, Apply, float | None]],
    given: Sequence[int] = (),
    earlier: Earlier = MappingProxyType({}),
) -> Iterator[Row]:
    """Yield the rows of the plain model with less work, then of what is tried: its name, how it is applied, its budget.

    ``given`` and ``earlier`` as of ``plain``.
    """
    curves = Curve(), Curve()
    yield from plain(bench, curves, given, earlier)
    for name, apply, budget in tried:
        if known := earlier.get((bench.work, name)):
            yield known
            continue
        numbers, pairs = of_runs(bench, list(bench.runs(apply)), budget)
        yield row(bench, name, numbers | over(numbers, pairs, *curves), pairs)


def rows_of(path: Path | None) -> tuple[Earlier, dict[str, str]]:
    """Return the rows of a file of results, and a note that says when and how they were drawn."""
    if path is None:
        return {}, {}
    found = json.loads(path.read_text("utf-8"))
    rows = [Row(**row) for row in found["rows"]]
    names = ", ".join(row.name for row in rows)
    about = f"{names}: by `{found['command']}` at commit {found['commit']}"
    return {(row.work, row.name): row for row in rows}, {f"earlier, {found['date']}": about}


def few(bench: Bench) -> Iterator[Row]:
    """Yield the rows of few steps: Reuse Steps, and, if of up to 15 one was left out, the plain model without one."""
    found = [of_runs(bench, list(bench.runs(reused(budget))), budget) for budget in FEW_BUDGETS]
    if bench.solver.steps <= 15 and any(numbers["evaluations"] < bench.solver.steps for numbers, _ in found):
        yield from plain(bench, (Curve(), Curve()), (bench.solver.steps - 1,))
    for budget, (numbers, pairs) in zip(FEW_BUDGETS, found, strict=True):
        yield row(bench, f"Reuse Steps {budget:g}", numbers, pairs)


def together(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield what all pictures of each budget came to."""
    for budget in FEW_BUDGETS:
        drawn = [in_full(row.pairs) for row in rows if row.name == f"Reuse Steps {budget:g}"]
        values = {name: [value for one in drawn for value in one[name]] for name in ("share", "estimate", "alarm")}
        work = f"all of these, {len(values['share'])} pictures"
        yield Row(f"Reuse Steps {budget:g}", work, quality=promised(values, budget))


def main() -> None:
    """Measure the solvers that were asked for."""
    options = arguments(__doc__.splitlines()[0], only=tuple(WITNESSES | FEW), more=_more)
    witness, solvers = (FEW if options.few else WITNESSES)[options.only or "icons"]
    witness = replace(witness, guidance=options.guidance or witness.guidance)
    names = options.solvers or (QUICK if options.quick and not options.few else [solver.name for solver in solvers])
    earlier, note = rows_of(options.earlier)
    rows: list[Row] = []
    for solver in (solver for solver in solvers if solver.name in names):
        bench = Bench(witness, solver)
        bench.pairs = held_out(bench, 4 if options.quick else options.pairs, FEW_CAPTIONS if options.few else None)
        given = options.budgets, options.rivals, options.left
        rows += collected(few(bench) if options.few else measure(bench, *given, earlier))
    if options.few:
        rows += together(rows)
    notes = NOTES | note | ({} if options.few else OF_RIVALS) | {witness.name: about_weights(witness)}
    report(rows, "the plain model with all steps, from the same seed", options.json, notes)
    if options.json and not options.few:
        plot([asdict(row) for row in rows], options.json.with_suffix(".png"))


def _more(parser: argparse.ArgumentParser) -> None:
    names = [one.name for one in (*SOLVERS, *FLOW_SOLVERS, *LONG, *(one for _, few in FEW.values() for one in few))]
    parser.add_argument("--solvers", nargs="+", choices=names, metavar="NAME", help="such as 'euler, normal, 30 steps'")
    parser.add_argument("--earlier", type=Path, metavar="PATH", help="its rows are kept")
    parser.add_argument("--few", action="store_true", help="6 to 30 steps, all witnesses")
    add_pairs(parser)
    parser.add_argument(
        "--left", nargs="+", type=int, default=(), metavar="N", help="steps, or levels, of the plain model"
    )
    parser.add_argument("--budgets", nargs="+", type=float, default=BUDGETS, metavar="SHARE")
    parser.add_argument("--guidance", type=float, help="instead of the witness's own")
    parser.add_argument("--rivals", nargs="*", choices=(*RIVALS, TOKENS), default=RIVALS, help="bf16: and another seed")


if __name__ == "__main__":
    main()
