"""Models of AUTOMATIC1111's WebUI and of Forge, which differ in how passes are computed, and in ControlNets.

All else is alike: the sampler, the guided prediction, the classes of the UNet's layers. Neither host has types.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ..core.not_copied import Kwargs
from ..core.shadow import Shadows, computed_by, replacement

Denoiser = Any
"""The guided prediction (``CFGDenoiser``), a module: the sampler's function calls it as its model. Its ``inner_model``
has the schedule, and computes passes in A1111; ``step`` is the number of the evaluation."""
Processing = Any
"""A request for pictures. ``sd_model`` is the model in use now: in the middle of a run a refiner may replace it."""
POSITIVE, NEGATIVE = 0, 1


class WebUIModel:
    """A model of AUTOMATIC1111's WebUI, whose denoiser asks its inner model, positive prompts first.

    Attributes:
        network: the UNet or transformer.
        owner, name: object and attribute of the function that computes passes from ``(x, sigma, **conditions)``.
        dtype: in which the network computes.
        gives_noise: whether passes are predictions of noise, as for samplers that count in timesteps, or of pictures.
        flow: whether the network was trained by flow matching.
    """

    def __init__(self, model: Any, denoiser: Denoiser, timesteps: bool) -> None:
        self.network: Module = model.model.diffusion_model
        self.owner, self.name = denoiser.inner_model, "forward"
        self.gives_noise = timesteps
        self.dtype = self._dtype()
        self.flow = _is_flow(model.model)

    def _dtype(self) -> torch.dtype:
        if torch.is_autocast_enabled():
            return torch.get_autocast_gpu_dtype()
        stored = next(self.network.parameters()).dtype
        return stored if stored.itemsize > 1 else torch.float16  # A1111 computes with fp8 weights in it

    def positive(self, rows: int, images: int, options: Kwargs) -> slice | None:
        """Return the rows of the positive pass in a call of ``rows`` for both; None for a call with other passes."""
        return slice(0, images) if rows == 2 * images else None

    def taking_part(self, sigma: float) -> Hashable:
        """Return the ControlNets that are on at a noise level, as far as the host knows them."""
        return ()

    def leave_out_controls(self, forecast: Callable[[Tensor], bool], shadows: Shadows) -> None:
        """Leave ControlNets out too where a call for ``x`` will be forecast; here they are inside of the network."""


class ForgeModel(WebUIModel):
    """A model of Forge and its relatives, in a patcher, which may hold ControlNets."""

    def __init__(self, model: Any, denoiser: Denoiser, timesteps: bool) -> None:
        self.unet = model.forge_objects.unet
        self.network = self.unet.model.diffusion_model
        self.owner, self.name = self.unet.model, "apply_model"
        self.gives_noise = False
        self.flow = _is_flow(self.unet.model)
        self.dtype = getattr(self.unet.model, "computation_dtype", None) or self._dtype()

    def positive(self, rows: int, images: int, options: Kwargs) -> slice | None:
        given = options.get("transformer_options")
        kinds = given.get("cond_or_uncond") if isinstance(given, dict) else None
        if rows != 2 * images or kinds not in ([POSITIVE, NEGATIVE], [NEGATIVE, POSITIVE]):
            return None
        return slice(0, images) if kinds[0] == POSITIVE else slice(images, rows)

    def taking_part(self, sigma: float) -> Hashable:
        def active() -> Iterator[Hashable]:
            control = self.unet.controlnet_linked_list
            while control is not None:
                first, last = getattr(control, "timestep_range", None) or (float("inf"), 0.0)
                yield id(control), first >= sigma >= last
                control = control.previous_controlnet

        return tuple(active())

    def leave_out_controls(self, forecast: Callable[[Tensor], bool], shadows: Shadows) -> None:
        control = self.unet.controlnet_linked_list  # it asks the others itself
        if control is None:
            return
        compute = control.get_control

        def get_control(x: Tensor, *args: object, **options: object) -> object:
            return None if forecast(x) else compute(x, *args, **options)

        shadows.put(control, "get_control", get_control)


def is_unet(network: object) -> bool:
    """Return whether a network is a UNet with the layout of SD 1.x, SD 2.x and SDXL."""
    return all(hasattr(network, name) for name in ("input_blocks", "middle_block", "output_blocks"))


def computed_by_others(layer: Module) -> str:
    """Return in a sentence which extension computes a layer itself; "" if none does.

    A1111's HyperTile leaves its function on layers when it is switched off, where it passes everything on.
    """
    found, tiles = replacement(layer), getattr(layer, "__webui_hypertile_params", None)
    if tiles is not None and not tiles.enabled and getattr(found, "__wrapped__", None) == tiles.forward:
        found = None
    return computed_by(found)


def _is_flow(model: Any) -> bool:
    predictor = getattr(model, "predictor", None)  # of Forge; the others have classes by ComfyUI's names
    if predictor is not None:
        return getattr(predictor, "prediction_type", "") == "const"
    sampling = type(getattr(model, "model_sampling", None))
    return any(kind.__name__ in ("CONST", "ModelSamplingDiscreteFlow") for kind in sampling.__mro__)


def model_of(model: Any, denoiser: Denoiser, timesteps: bool) -> WebUIModel:
    """Return the model of either host. ``timesteps``: whether the sampler counts in them, and not in noise levels."""
    kind = ForgeModel if hasattr(model, "forge_objects") else WebUIModel
    return kind(model, denoiser, timesteps)
