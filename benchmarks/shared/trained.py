"""Trained models with the solvers that draw with them: what step_caches and what judges Reuse Steps have in common.

The icon model, in ComfyUI: in it another seed is another picture. Each pair of prompt and seed is a run by itself, as a
user makes it.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from . import icons
from .nodes import Apply
from .record import ROOT
from .roof import Counted

sys.path[:0] = [str(ROOT / folder) for folder in ("tests", "tools/demo/icon_nodes")]
from comfy_host import in_process  # noqa: E402


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
    Solver("dpmpp_2m", "karras", 20), Solver("dpmpp_2m", "normal", 20), Solver("euler", "karras", 30),
    Solver("euler", "normal", 30), Solver("uni_pc", "normal", 20), Solver("heun", "normal", 15, 2),
    Solver("euler_ancestral", "normal", 30), Solver("dpmpp_2m_sde", "karras", 20), Solver("ddim", "ddim_uniform", 30),
    Solver("res_multistep", "simple", 20), Solver("res_multistep", "simple", 9), Solver("ipndm", "normal", 20),
    Solver("deis", "normal", 20), Solver("lms", "karras", 20), Solver("dpm_2", "karras", 15, 2),
    Solver("dpmpp_sde", "karras", 15, 2), Solver("dpmpp_3m_sde", "exponential", 30), Solver("lcm", "sgm_uniform", 8),
    Solver("er_sde", "normal", 20), Solver("gradient_estimation", "normal", 20),
)  # fmt: skip
FLOW_SOLVERS = (Solver("euler", "simple", 30), Solver("dpmpp_2m", "simple", 20), Solver("res_multistep", "simple", 20))
"""What transformers trained by flow matching are sampled with; ``simple`` spaces them evenly."""


@dataclass(frozen=True)
class Witness:
    """A trained model, what is asked of it, and how strongly.

    ``shift``: of a transformer's schedule where it is not its own. ``frames``: of a video.
    """

    name: str
    weights: Path
    prompts: tuple[str, ...]
    guidance: float
    shift: float | None = None
    frames: int | None = None

    @property
    def side(self) -> int:
        """Of the pictures, in pixels, each of which is a place of the latent."""
        return icons.side(self.weights)

    @property
    def blank(self) -> Tensor:
        """The empty latent, ``[1, 4, (frames,) side, side]``."""
        frames = () if self.frames is None else (self.frames,)
        return torch.zeros(1, 4, *frames, self.side, self.side)


ICONS = Witness(
    "icons",
    icons.WEIGHTS / "icons32.safetensors",
    (
        "red heart flat", "blue star shaded", "green cat tile", "purple fish flat", "orange house shaded",
        "pink flower flat", "cyan umbrella tile", "yellow moon shaded", "blue key flat", "red anchor tile",
        "green cactus shaded", "orange bell outline", "purple ghost flat", "pink rabbit tile", "cyan cup shaded",
        "yellow duck flat",
    ),
    3.0,
)  # fmt: skip
"""Some of the captions were held out when the model was trained."""
ICONS_64 = replace(
    ICONS, name="icons, 64 x 64", weights=icons.WEIGHTS / "icons64.safetensors", prompts=ICONS.prompts[:8]
)
"""As many tokens as Stable Diffusion 1.5 has at 512 x 512."""
ICONS_LUMINA = replace(ICONS, name="icons, Lumina", weights=icons.WEIGHTS / "icons64_lumina.safetensors")
"""A transformer of today's form, ComfyUI's own Lumina 2 in small."""
ICONS_DISTILLED = replace(
    ICONS, name="icons, distilled Lumina", weights=icons.WEIGHTS / "icons32_lumina_distilled.safetensors", guidance=1.0
)
"""One that draws in 8 steps, with its guidance inside."""
EMOJI = Witness(
    "emoji",
    ROOT / "tools" / "demo" / "icon_nodes" / "emoji32.safetensors",
    ("penguin", "red apple", "banana", "pizza", "dog", "tulip", "octopus", "birthday cake"),
    3.0,
)
"""The demo's model, with v-prediction and zero terminal signal. It knows its pictures by heart: seeds look alike."""
ICONS_VIDEO = Witness(
    "icons, video",
    icons.WEIGHTS / "icons_video.safetensors",
    (
        "red heart left", "blue star up", "green house grow", "purple fish right", "orange moon down",
        "pink umbrella turn", "cyan key grow", "yellow cloud left",
    ),
    3.0,
    frames=icons.FRAMES,
)  # fmt: skip
"""A video transformer, ComfyUI's own Wan in small."""


@dataclass
class BenchRun:
    """One run: the latent ``[1, 4, (frames,) side, side]``, its cost in evaluations, and what the node said of it.

    ``alarm``: whether it called its estimate beyond the budget.
    """

    latent: Tensor
    evaluations: float
    estimate: float = 0.0
    alarm: bool = False


class Bench:
    """One model with one solver; remembers what the plain model drew.

    Every prompt is asked for with each of the ``seeds``; of these pairs all or the first so many are drawn.
    """

    def __init__(self, witness: Witness, solver: Solver, seeds: int = 1, pairs: int | None = None) -> None:
        in_process.bootstrap(cpu=not torch.cuda.is_available())
        import model as loader

        self.witness, self.solver = witness, solver
        self._decode = loader.decode
        self.patcher, self.encode = loader.load(witness.weights)
        if witness.shift is not None:
            sampling = self.patcher.model.model_sampling
            sampling.set_parameters(shift=witness.shift, multiplier=sampling.multiplier)
        self.pairs = [(prompt, 1000 + seed) for seed in range(seeds) for prompt in witness.prompts][:pairs]
        self.counted = Counted(self.patcher.model.diffusion_model)
        self._plain: dict[tuple[str, int, int], Tensor] = {}

    @property
    def work(self) -> str:
        shift = "" if self.witness.shift is None else f", shift {self.witness.shift:g}"
        pairs = f"{len(self.pairs)} pairs"
        return f"{self.witness.name}, {self.solver.name}, guidance {self.witness.guidance:g}{shift}, {pairs}"

    def sample(self, patcher: Any, prompt: str, seed: int, steps: int, sigmas: Tensor | None = None) -> Tensor:
        """Return the latent that a MODEL draws; ``sigmas``: with these noise levels."""
        given = (self.encode(prompt), self.encode(""), self.witness.blank, seed, steps, self.witness.guidance)
        return in_process.sample(patcher, *given, self.solver.sampler, self.solver.scheduler, sigmas=sigmas)

    def without(self, levels: Sequence[int]) -> Tensor:
        """Return the noise levels of the solver's schedule without some, by their numbers from 0."""
        from comfy.samplers import calculate_sigmas

        sampling = self.patcher.get_model_object("model_sampling")
        whole = calculate_sigmas(sampling, self.solver.scheduler, self.solver.steps)
        return whole[[level for level in range(len(whole)) if level not in levels]]

    def pictures(self, latent: Tensor) -> Tensor:
        """Return pictures, or frames, ``[batch, height, width, 3]``."""
        frames = latent if latent.ndim == 4 else latent.transpose(1, 2).flatten(0, 1)
        return self._decode(frames, scale=1)

    def plain(self, prompt: str, seed: int, steps: int | None = None) -> Tensor:
        """Return what the plain model draws."""
        key = (prompt, seed, steps or self.solver.steps)
        if key not in self._plain:
            self._plain[key] = self.sample(self.patcher, *key)
        return self._plain[key]

    @property
    def passes(self) -> int:
        """How many a whole evaluation has: without guidance there is no negative one."""
        return 1 if self.witness.guidance == 1.0 else 2

    def runs(self, apply: Apply) -> Iterator[BenchRun]:
        """Yield what a variant draws for each pair."""
        for prompt, seed in self.pairs:
            patcher, self.counted.pictures = apply(self.patcher), 0.0
            latent = self.sample(patcher, prompt, seed, self.solver.steps)
            yield BenchRun(latent, self.counted.pictures / self.passes, *_said(patcher))

    def seed_distance(self, prompt: str) -> float:
        """Return the unit of distances: the mean between pictures of one prompt from different seeds, as latents."""
        from paceline.optimizers.core.choices import unit

        drawn = [self.plain(prompt, seed) for asked, seed in self.pairs if asked == prompt]
        drawn += [self.plain(prompt, 2000)] if len(drawn) < 2 else []
        apart = statistics.fmean(rms(a, b) for i, a in enumerate(drawn) for b in drawn[:i])
        return unit(apart, statistics.fmean(float(latent.double().std()) for latent in drawn))


def rms(a: Tensor, b: Tensor) -> float:
    """Return the root mean square of a difference."""
    return float((a.double() - b.double()).square().mean().sqrt())


def _said(patcher: Any) -> tuple[float, bool]:
    """Return how far Reuse Steps, if it is there, believes its last picture to be, and whether it raised an alarm."""
    from paceline.optimizers.in_comfyui.run.stack import stack_of

    technique = stack_of(patcher).find("step_reuse")
    return (technique.policy.outcome.share, technique.policy.beyond) if technique else (0.0, False)


def about_weights(witness: Witness) -> str:
    """Return which weights a model has."""
    with safe_open(witness.weights, "pt") as file:
        steps = file.metadata().get("steps", "?")
    found = sha256(witness.weights.read_bytes()).hexdigest()[:16]
    return f"weights of {steps} training steps, SHA-256 {found}"
