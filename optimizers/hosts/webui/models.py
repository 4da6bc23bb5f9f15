"""Models of AUTOMATIC1111's WebUI and of Forge, which differ in how passes are computed, and in ControlNets.

All else is alike: the sampler, the guided prediction, the classes of the UNet's layers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_map_only

from ....core.calls import Args, Kwargs
from ....core.shadow import Shadows
from .protocols import Denoiser

Halves = tuple[slice, slice]
"""The rows of the positive and of the negative pass in one call for both."""

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

    def halves(self, rows: int, images: int, options: Kwargs) -> Halves | None:
        """Return the rows of both passes in a call of ``rows``; None for a call with other passes."""
        return (slice(0, images), slice(images, rows)) if rows == 2 * images else None

    def only(self, rows: slice, args: Args, options: Kwargs) -> tuple[Args, Kwargs]:
        """Return the arguments of a call for some of its rows."""
        count = len(args[0])  # type: ignore[arg-type]

        def some(tensor: Tensor) -> Tensor:
            return tensor[rows] if tensor.ndim and len(tensor) == count else tensor

        found: tuple[Args, Kwargs] = tree_map_only(Tensor, some, (args, options))
        return found

    def guidance(self, p: Any, scale: float) -> float:
        """Return the scale of the guidance, where the sampler was asked for ``scale``."""
        return scale

    def passes_are_used(self) -> bool:
        """Return whether an extension combines the passes in another way than plain guidance."""
        return False

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

    def halves(self, rows: int, images: int, options: Kwargs) -> Halves | None:
        given = options.get("transformer_options")
        kinds = given.get("cond_or_uncond") if isinstance(given, dict) else None
        if rows != 2 * images or kinds not in ([POSITIVE, NEGATIVE], [NEGATIVE, POSITIVE]):
            return None
        first, second = slice(0, images), slice(images, rows)
        return (first, second) if kinds[0] == POSITIVE else (second, first)

    def only(self, rows: slice, args: Args, options: Kwargs) -> tuple[Args, Kwargs]:
        args, options = super().only(rows, args, options)
        images = len(args[0])  # type: ignore[arg-type]
        given: Any = options["transformer_options"]
        told = {"cond_or_uncond": [POSITIVE], "cond_indices": list(range(images)), "uncond_indices": []}
        return args, {**options, "transformer_options": {**given, **told}}

    def guidance(self, p: Any, scale: float) -> float:
        hires = getattr(p, "is_hr_pass", False) and getattr(p, "hr_cfg", None)
        return float(hires) if hires else scale

    def passes_are_used(self) -> bool:
        looks = ("sampler_cfg_function", "sampler_pre_cfg_function", "sampler_post_cfg_function")
        return any(self.unet.model_options.get(name) for name in looks)

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
