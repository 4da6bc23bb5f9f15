"""What this package uses of the objects of Stable Diffusion WebUI and Forge, as types: told by what they have.

``Any`` stands where the two hosts hand out values of different kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor
from torch.nn import Module, ModuleList

from ....core.calls import Function


class Denoiser(Protocol):
    """The guided prediction (``CFGDenoiser``), a module: the sampler's function calls it as its model.

    Attributes:
        inner_model: what it asks for the passes in A1111; in both, what knows the schedule (``t_to_sigma``).
        step: number of the evaluation; total_steps: how many there will be.
        need_last_noise_uncond: whether the sampler uses the negative pass for something else than guidance.
    """

    inner_model: Any
    step: int
    total_steps: int | None
    need_last_noise_uncond: bool

    def forward(self, x: Tensor, sigma: Tensor, **options: Any) -> Tensor: ...

    def update_inner_model(self) -> None: ...


class Sampler(Protocol):
    """What draws one pass of a picture; made anew for each. ``func``: the solver's function."""

    func: Function


class Processing(Protocol):
    """What is being drawn. ``sd_model`` is the model of this moment: a refiner takes its place in the middle."""

    sampler: Sampler
    sd_model: Any


class UNet(Protocol):
    """The UNet of SD 1.x, SD 2.x and SDXL, whose rows of layers are alike in ldm, sgm and Forge."""

    input_blocks: ModuleList
    middle_block: Module
    output_blocks: ModuleList


class Scheduled(Protocol):
    """A prompt up to a step, of a prompt that changes while it is drawn."""

    end_at_step: int


class Composed(Protocol):
    """One of the prompts that are joined by AND."""

    schedules: Sequence[Scheduled]


class MultiPrompt(Protocol):
    """The positive prompts of all pictures that are drawn at once."""

    batch: Sequence[Sequence[Composed]]
