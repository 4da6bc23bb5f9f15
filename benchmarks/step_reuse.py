"""How near do pictures with Reuse Steps stay to those without it, and would fewer steps in the same time do as well?

    python benchmarks/step_reuse.py [--quick] [--json PATH] [--threads N] [--only emoji|icons] [--solvers NAME ...]

Two trained models in ComfyUI: the demo's emoji model, which knows 48 pictures by heart, and the icon model, in which
another seed is another picture. Each pair of prompt and seed is a run by itself, as a user makes it. Nothing is timed:
work is counted in evaluations of the network, of which one without its negative pass counts half. The controls are the
plain model with as many steps as fit into the same number of evaluations (rounded down, pair by pair), with another
seed, with one step fewer, and in bf16.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from common import arguments
from record import ROOT, Row, keep, report
from safetensors import safe_open
from step_reuse_quality import fewer_steps_beside, in_short, of_node, quality, rms
from torch import Tensor

sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "demo" / "emoji_nodes")]
import icon_data  # noqa: E402
from comfy_host import in_process  # noqa: E402
from comfy_host.pack import load_nodes  # noqa: E402
from comfy_host.paths import cache_dir  # noqa: E402

NODE = "PacelineReuseSteps"
BUDGETS = (0.02, 0.05, 0.15)
NOTES = {
    "psnr": "dB, of the pictures, mean over the pairs of prompt and seed; *psnr worst* of the worst pair",
    "share": "distance of the latents as a share of what another seed changes",
    "evaluations": "of the network in one run, mean; one without its negative pass counts half",
    "kept": "share of the pairs that stayed inside of the budget",
    "gain": "dB nearer than fewer steps with as many evaluations, of the means; *gain worst* of the worst pairs",
    "estimate": "share of the pairs whose estimate by the node is within a factor of 2 of the truth",
    "ratio": "median of truth / estimate",
}


@dataclass(frozen=True)
class Solver:
    """A solver with its schedule; ``evaluations`` of the network in each step."""

    sampler: str
    scheduler: str
    steps: int
    evaluations: int = 1

    @property
    def name(self) -> str:
        """The words that rows of it have in common."""
        return f"{self.sampler}, {self.scheduler}, {self.steps} steps"


SOLVERS = (
    Solver("dpmpp_2m", "karras", 20),
    Solver("dpmpp_2m", "normal", 20),
    Solver("euler", "karras", 30),
    Solver("euler", "normal", 30),
    Solver("uni_pc", "normal", 20),
    Solver("heun", "normal", 15, 2),
    Solver("euler_ancestral", "normal", 30),
    Solver("dpmpp_2m_sde", "karras", 20),
    Solver("ddim", "ddim_uniform", 30),
    Solver("res_multistep", "simple", 20),
    Solver("res_multistep", "simple", 9),
    Solver("ipndm", "normal", 20),
    Solver("deis", "normal", 20),
    Solver("lms", "karras", 20),
    Solver("dpm_2", "karras", 15, 2),
    Solver("dpmpp_sde", "karras", 15, 2),
    Solver("dpmpp_3m_sde", "exponential", 30),
    Solver("lcm", "sgm_uniform", 8),
    Solver("er_sde", "normal", 20),
    Solver("gradient_estimation", "normal", 20),
)
FLOW_SOLVERS = (Solver("euler", "simple", 30), Solver("dpmpp_2m", "simple", 20), Solver("res_multistep", "simple", 20))
"""What transformers trained by flow matching are sampled with; ``simple`` spaces them evenly."""
QUICK = (SOLVERS[0], SOLVERS[3])


@dataclass(frozen=True)
class Witness:
    """A trained model, what is asked of it, and how strongly."""

    name: str
    weights: Path
    prompts: tuple[str, ...]
    guidance: float
    frames: int = 0


EMOJI = Witness(
    "emoji",
    ROOT / "demo" / "emoji_nodes" / "emoji32.safetensors",
    (
        "red apple", "pizza", "birthday cake", "fox", "panda", "ladybug", "sunflower", "moon",
        "banana", "cat", "penguin", "rose", "tree", "octopus", "cookie", "fire",
    ),
    2.0,
)  # fmt: skip
ICONS = Witness(
    "icons",
    icon_data.WEIGHTS,
    (
        "red heart flat", "blue star shaded", "green cat tile", "purple fish flat", "orange house shaded",
        "pink flower flat", "cyan umbrella tile", "yellow moon shaded", "blue key flat", "red anchor tile",
        "green cactus shaded", "orange bell outline", "purple ghost flat", "pink rabbit tile", "cyan cup shaded",
        "yellow duck flat",
    ),
    3.0,
)  # fmt: skip
"""Some of the captions were held out when the model was trained."""
ICONS_FLUX = Witness("icons, transformer", cache_dir() / "icons_flux" / "icons_flux.safetensors", ICONS.prompts, 3.0)
"""Flux in small, made by ``python tools/train_emoji.py --geometry icons-flux``."""
ICONS_VIDEO = Witness(
    "moving icons",
    cache_dir() / "icons_video" / "icons_video.safetensors",
    (
        "red heart left", "blue star grow", "green house turn", "purple fish right", "orange moon down",
        "pink key up", "cyan umbrella turn", "yellow cloud grow",
    ),
    3.0,
    8,
)  # fmt: skip
"""Wan in small, made by ``python tools/train_emoji.py --geometry icons-video``."""
WITNESSES = {"emoji": (EMOJI, SOLVERS), "icons": (ICONS, SOLVERS), "icons-flux": (ICONS_FLUX, FLOW_SOLVERS)}
"""Each trained model with the solvers that it is sampled with."""


@dataclass
class Drawn:
    """One run: the latent ``[1, 4, 32, 32]``, what it cost in evaluations, and what the node estimated."""

    latent: Tensor
    evaluations: float
    estimate: float = 0.0


@dataclass
class JudgedRow(Row):
    """A row with the values of each of its ``pairs``, in the order of the benchmark: prompts first, then seeds."""

    pairs: dict[str, str] = field(default_factory=dict)


class Bench:
    """One model with one solver; remembers what the plain model drew."""

    def __init__(self, witness: Witness, solver: Solver, seeds: int) -> None:
        in_process.bootstrap()
        import model as loader

        self.witness, self.solver = witness, solver
        self._decode = loader.decode
        self.patcher, self.encode = loader.load(witness.weights)
        self.pairs = [(prompt, 1000 + seed) for seed in range(seeds) for prompt in witness.prompts]
        self._plain: dict[tuple[str, int, int], Tensor] = {}

    def sample(self, patcher: Any, prompt: str, seed: int, steps: int) -> Tensor:
        """Return the latent that a MODEL draws."""
        return in_process.sample(
            patcher,
            self.encode(prompt),
            self.encode(""),
            torch.zeros(1, 4, *(self.witness.frames,) * bool(self.witness.frames), 32, 32),
            seed,
            steps,
            self.witness.guidance,
            self.solver.sampler,
            self.solver.scheduler,
        )

    def pictures(self, latent: Tensor) -> Tensor:
        """Return pictures, or the frames of a video, ``[batch, height, width, 3]``."""
        return self._decode(latent.transpose(1, 2).flatten(0, 1) if self.witness.frames else latent, scale=1)

    def plain(self, prompt: str, seed: int, steps: int | None = None) -> Tensor:
        """Return what the plain model draws."""
        key = (prompt, seed, steps or self.solver.steps)
        if key not in self._plain:
            self._plain[key] = self.sample(self.patcher, *key)
        return self._plain[key]

    def node(self, settings: dict[str, Any]) -> Iterator[Drawn]:
        """Yield what the node gives for each pair."""
        patcher = load_nodes()[NODE].execute(model=self.patcher, **settings).args[0]
        from paceline.optimizers.hosts.comfyui.model import stack_of

        for prompt, seed in self.pairs:
            latent = self.sample(patcher, prompt, seed, self.solver.steps)
            outcome = stack_of(patcher).find("step_reuse").policy.outcome
            yield Drawn(latent, outcome.computed + 0.5 * outcome.guidance, outcome.share)

    def seed_distance(self, prompt: str) -> float:
        """Return the mean distance between pictures of one prompt from different seeds, as latents."""
        drawn = [self.plain(prompt, seed) for asked, seed in self.pairs if asked == prompt]
        drawn += [self.plain(prompt, 2000)]
        return statistics.fmean(rms(a, b) for i, a in enumerate(drawn) for b in drawn[:i])

    def fewer_steps(self, evaluations: float) -> int:
        """Return how many steps fit into so many evaluations."""
        return max(1, min(int(evaluations / self.solver.evaluations + 1e-6), self.solver.steps - 1))


def controls(bench: Bench, half: Any) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield what the numbers can be held against."""
    yield "another seed", quality(bench, (bench.plain(prompt, seed + 500) for prompt, seed in bench.pairs))[0]
    fewer = bench.solver.steps - 1
    one = quality(bench, (bench.plain(prompt, seed, fewer) for prompt, seed in bench.pairs))[0]
    yield "one step fewer", one | {"evaluations": float(fewer * bench.solver.evaluations)}
    yield "bf16", quality(bench, (bench.sample(half, *pair, bench.solver.steps) for pair in bench.pairs))[0]


def measure(bench: Bench, variants: dict[str, dict[str, Any]], with_controls: bool) -> Iterator[Row]:
    """Run all variants, and each beside its control.

    The keys of ``quality``: ``psnr`` of the pictures in dB, mean over pairs, and of the worst; ``share``: distance of
    the latents as a share of what another seed changes; ``kept``: share of the pairs inside of the budget;
    ``estimate``: share of the pairs whose estimate is within a factor of 2 of the truth; ``ratio``: median of truth /
    estimate; ``evaluations``: mean; ``gain``: how many dB nearer than fewer steps, mean and ``gain_worst``.
    """
    work = f"{bench.witness.name}, {bench.solver.name}, guidance {bench.witness.guidance:g}, {len(bench.pairs)} pairs"
    if with_controls:
        half = bench.patcher.clone()
        half.set_model_compute_dtype(torch.bfloat16)
        for name, numbers in controls(bench, half):
            yield Row(name, work, quality=numbers)
    for name, settings in variants.items():
        drawn = list(bench.node(settings))
        found, pairs = of_node(bench, drawn, settings["budget"])
        fewer, beside = fewer_steps_beside(bench, drawn)
        moved = [(share, guess) for share, guess in zip(pairs["share"], pairs["estimate"], strict=True) if guess > 0]
        found |= {
            "gain": found["psnr"] - fewer["psnr"],
            "gain_worst": found["psnr_worst"] - fewer["psnr_worst"],
        }
        if moved:
            found["estimate"] = statistics.fmean(0.5 <= share / estimate <= 2 for share, estimate in moved)
            found["ratio"] = statistics.median(share / estimate for share, estimate in moved)
        yield JudgedRow(name, work, quality=found, pairs=in_short(pairs))
        yield JudgedRow(f"fewer steps, beside {name}", work, quality=fewer, pairs=in_short(beside))


def settings_of(budget: float, **others: Any) -> dict[str, Any]:
    """Return the node's inputs."""
    return {"budget": budget, "forecast": "auto", "reuse_forecast": True, "reuse_guidance": True} | others


def main() -> None:
    """Measure all solvers on both models, or those that were asked for."""
    options = arguments(__doc__.splitlines()[0], only=tuple(WITNESSES), more=_more)
    rows: list[Row] = []
    notes = dict(NOTES)
    for name in (options.only,) if options.only else ("emoji", "icons"):
        witness, solvers = WITNESSES[name]
        witness = replace(witness, weights=options.icons) if name == "icons" else witness
        quick = FLOW_SOLVERS if solvers is FLOW_SOLVERS else QUICK
        wanted = options.solvers or [one.name for one in solvers if not options.quick or one in quick]
        for solver in (solver for solver in solvers if solver.name in wanted):
            bench = Bench(witness, solver, 1 if options.quick else options.seeds)
            bench.pairs = bench.pairs[: 8 if options.quick else None]
            budgets = BUDGETS[1:] if options.quick else options.budgets
            variants = {f"budget {budget:g}": settings_of(budget) for budget in budgets}
            for row in measure(bench, variants, not (options.quick or options.without_controls)):
                rows.append(row)
                keep([asdict(row)])
                print(row.work, row.name, {key: round(value, 4) for key, value in row.quality.items()}, flush=True)
        notes[witness.name] = about_weights(witness)
    report(rows, "the plain model with all steps, from the same seed", options.json, notes)


def about_weights(witness: Witness) -> str:
    """Return which weights a model has."""
    with safe_open(witness.weights, "pt") as file:
        steps = file.metadata().get("steps", "?")
    return f"weights of {steps} training steps, SHA-256 {sha256(witness.weights.read_bytes()).hexdigest()[:16]}"


def _more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--solvers", nargs="+", choices=[one.name for one in (*SOLVERS, *FLOW_SOLVERS)], metavar="NAME")
    parser.add_argument("--seeds", type=int, default=4, help="of each of the 16 prompts")
    parser.add_argument("--budgets", nargs="+", type=float, default=BUDGETS, metavar="SHARE")
    parser.add_argument("--without-controls", action="store_true", help="fewer steps only: no other seed, no bf16")
    parser.add_argument("--icons", type=Path, default=ICONS.weights, help="weights of the icon model")


if __name__ == "__main__":
    main()
