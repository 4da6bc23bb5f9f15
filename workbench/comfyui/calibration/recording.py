"""Record what the network says in a full run, and sample again from the record, without the network.

What is recorded of each pass is its input x and its prediction D. A replay that skips steps arrives at the next noise
level with another input, x'; it is told D + (x' - x) there: the predicted noise is the same, and the predicted picture
moves along with the input. To first order that is what a network does near the end, where it keeps what it is shown; at
high noise it pulls the latent back. What a plan really does is therefore checked with the network in the end. The
sampler and the node are the real ones also in a replay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ....core.errors import UnsupportedModel
from ....core.phrases import translatable
from ....optimizers.hosts.comfyui.protocols import Executor, ModelPatcher
from ..long_running import stop_if_cancelled
from ..sampling import SamplingJob, sample

_KEY = "paceline_recording"

Answers = dict[tuple[float, int], tuple[Tensor, Tensor]]
"""Input and prediction, ``[batch, ...]``, by noise level and pass (0 the positive one, 1 the negative one), float32."""


@dataclass
class Recording:
    """One full run.

    Attributes:
        job: what was sampled.
        latent: what came of it, ``[batch, ...]``.
        seed_distance: root mean square distance to the latent from another seed.
        levels: how many noise levels there were.
        answers: what the network said.
    """

    job: SamplingJob
    latent: Tensor
    seed_distance: float
    answers: Answers = field(default_factory=dict)

    @property
    def levels(self) -> int:
        """How many noise levels the network was asked at."""
        return len({sigma for sigma, _ in self.answers})

    def share(self, latent: Tensor) -> float:
        """Return how far another latent is, the worst item of the batch, as a share of what another seed changes."""
        return _farthest(latent, self.latent) / self.seed_distance

    def replay(self, model: ModelPatcher) -> Tensor:
        """Return what a MODEL with Reuse Steps draws when its network says what was recorded."""
        return drawn(_with_wrapper(model, self._answer), self.job, self.job.seed)

    def _answer(self, executor: Executor, x: Tensor, timestep: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        passes = _passes(args, kwargs)
        sigma = float(timestep.flatten()[0])
        known = [self.answers[self._nearest(sigma), number] for number in passes]
        before, said = (torch.cat(tensors).to(x.device) for tensors in zip(*known, strict=True))
        return (said + (x.float() - before)).to(x.dtype)

    def _nearest(self, sigma: float) -> float:
        return min((level for level, _ in self.answers), key=lambda level: abs(level - sigma))


def record(model: ModelPatcher, job: SamplingJob) -> Recording:
    """Sample twice with the plain model, the second time from another seed, and keep what it said the first time.

    Raises:
        UnsupportedModel: if a pass has several conditionings, or their areas are not the whole picture.
    """
    answers: Answers = {}

    def listen(executor: Executor, x: Tensor, timestep: Tensor, *args: Any, **kwargs: Any) -> object:
        denoised = executor(x, timestep, *args, **kwargs)
        assert isinstance(denoised, Tensor)
        sigma, passes = float(timestep.flatten()[0]), _passes(args, kwargs)
        for number, at, predicted in zip(passes, x.chunk(len(passes)), denoised.chunk(len(passes)), strict=True):
            answers.setdefault((sigma, number), (at.float().cpu(), predicted.float().cpu()))
        return denoised

    latent = drawn(_with_wrapper(model, listen), job, job.seed)
    if any(before.shape != latent.shape for before, _ in answers.values()):
        raise UnsupportedModel(
            translatable("A plan is found with one positive and one negative conditioning for the whole picture."),
            translatable("Connect prompts without areas. The plan can then be used with areas too."),
        )
    return Recording(job, latent, max(_farthest(drawn(model, job, job.seed + 1), latent), 1e-9), answers)


def _passes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
    """Return which pass each part of a batch belongs to; ``args`` are those of BaseModel.apply_model after x and t."""
    options = kwargs.get("transformer_options") or next(
        (value for value in reversed(args) if isinstance(value, dict) and "cond_or_uncond" in value), {}
    )
    passes: list[int] = options["cond_or_uncond"]
    return passes


def _with_wrapper(model: ModelPatcher, wrapper: Callable[..., object]) -> ModelPatcher:
    from comfy.patcher_extension import WrappersMP

    clone = model.clone()
    clone.add_wrapper_with_key(WrappersMP.APPLY_MODEL, _KEY, wrapper)
    return clone


def drawn(model: ModelPatcher, job: SamplingJob, seed: int) -> Tensor:
    """Return the latent that a MODEL draws from ``seed``, in the place of the job's own."""
    return sample(model, job, seed, clock=lambda: 0.0, on_step=stop_if_cancelled).latent


def _farthest(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).flatten(1).square().mean(1).sqrt().max())
