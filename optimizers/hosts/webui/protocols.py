"""The attributes of Stable Diffusion WebUI's and Forge's objects that this package uses, as types.

``Any`` stands where the two hosts hand out values of different kinds.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor
from torch.nn import Module, ModuleList


class Denoiser(Protocol):
    """The guided prediction (``CFGDenoiser``), a module: the sampler's function calls it as its model.

    Attributes:
        inner_model: in A1111 the module that computes passes; in both hosts it has the schedule (``t_to_sigma``).
        step: number of the evaluation; total_steps: how many there will be.
    """

    inner_model: Any
    step: int
    total_steps: int | None

    def forward(self, x: Tensor, sigma: Tensor, **options: Any) -> Tensor: ...

    def update_inner_model(self) -> None: ...


class Processing(Protocol):
    """A request for pictures. ``sd_model`` is the model in use now: in the middle of a run a refiner may replace it."""

    sampler: Any
    sd_model: Any


class WebUIUNet(Protocol):
    """The UNet of SD 1.x, SD 2.x and SDXL, whose rows of layers are alike in ldm, sgm and Forge."""

    input_blocks: ModuleList
    middle_block: Module
    output_blocks: ModuleList
