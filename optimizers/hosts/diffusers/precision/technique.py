"""Compute in another dtype, and get back the very weights that were there before."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from .....core.errors import BackendUnavailable, UnsupportedModel
from .....core.settings import choice
from .....core.shared import Function
from ....precision.policy import PrecisionPolicy, choose_dtype
from ....precision.settings import DTYPES, PrecisionSettings, arithmetic
from ..components import CONTROLNET, DENOISER, TEXT, VAE, device_of, require_plain_weights
from ..host import Host, PipelineTechnique
from ..patches import Patches, to_channels_last

_PLACES = ("img_ids", "txt_ids", "time_ids")
"""Arguments that hold positions and sizes, which few bits cannot count."""


@dataclass(frozen=True)
class Precision(PrecisionSettings):
    """In which dtype to compute: the settings of the node Model Precision, and one more.

    ``vae_dtype``: ``same`` as the other models, or one of ``DTYPES``. SDXL's VAE needs ``fp32`` where the others are
    ``fp16``.
    """

    vae_dtype: str = choice("same", ("same", *DTYPES))


class ComponentPrecision(PipelineTechnique):
    """Model Precision on one component; the weights that were there are kept in the memory of the CPU."""

    kind, title = PrecisionPolicy.kind, "Model Precision"
    policy: PrecisionPolicy
    settings: Precision
    roles = (DENOISER, CONTROLNET, VAE, TEXT)

    def attach(self, host: Host, patches: Patches) -> None:
        settings, component = self.settings, host.component
        self._kept: list[tuple[torch.Tensor, torch.Tensor, torch.dtype]] = []
        if component.role == VAE and settings.vae_dtype != "same":
            settings = replace(settings, dtype=settings.vae_dtype)
        require_plain_weights(self.title, component)
        device = device_of(component.part)
        hooks = [
            hook for each in component.part.modules() if (hook := getattr(each, "_diffusers_hook", None)) is not None
        ]
        if any(hook.get_hook("layerwise_casting") is not None for hook in hooks):
            raise UnsupportedModel(
                f"Model Precision: diffusers casts the layers of this {component.class_name} in each call.",
                "Leave Precision out for it, or enable_layerwise_casting: its compute_dtype says what they compute in.",
            )
        try:
            # The 16 bits that devices other than processors multiply fastest.
            newer = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
            otherwise = torch.bfloat16 if newer else torch.float16
            dtype = choose_dtype(settings, component.class_name, device, otherwise)
        except BackendUnavailable as error:
            raise UnsupportedModel(f"Model Precision: {error.problem}", error.remedy) from None
        weights = list(_weights(component.part))
        previous = next((tensor.dtype for tensor, stays in weights if not stays), dtype)
        kept = sum(stays for _, stays in weights)
        self.policy = PrecisionPolicy(self.title, self.settings, previous, dtype, previous, dtype, kept=kept)
        for tensor, stays in weights:
            if not stays and tensor.dtype != dtype:
                original, converted = tensor.data, tensor.data.to(dtype)
                kept_on_cpu = original if original.device.type in ("cpu", "meta") else original.to("cpu")
                tensor.data = converted
                self._kept.append((tensor, kept_on_cpu, dtype))
                # One by one: where memory runs out for one, the others go back.
                patches.on_undo(partial(_put_back, tensor, kept_on_cpu, dtype))
        patches.on_undo(partial(_convert_added, component.part, [tensor for tensor, _ in weights], dtype, previous))
        self._convert_calls(host, next((tensor for tensor, stays in weights if not stays), None))
        if settings.channels_last:
            to_channels_last(component.part, patches)

    def _convert_calls(self, host: Host, weight: torch.Tensor | None) -> None:
        """Let the component take tensors of other dtypes: pipelines expect the same one of all their parts.

        The dtype is that of ``weight`` in each call: pipelines of SDXL convert their VAE to float32 and back.
        """
        if weight is None:
            return

        def converted(inner: Function) -> Function:
            @functools.wraps(inner)
            def run(*args: Any, **kwargs: Any) -> Any:
                # What a component is called with first: the noisy latents, or those to decode.
                first = next((value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)), None)
                dtype = first.dtype if first is not None and first.is_floating_point() else None
                return _back(inner(*_as(args, weight.dtype), **_as(kwargs, weight.dtype)), dtype)

            return run

        host.wrap_entries(converted)

    def replaced(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for tensor, original, dtype in self._kept:
            yield tensor, _before(tensor, original, dtype)

    def around(self) -> AbstractContextManager[None]:
        self.activity.use("call")
        return arithmetic(self.settings)


def _as(value: Any, dtype: torch.dtype) -> Any:
    """Return ``value`` with its floating point tensors in ``dtype``, however nested; those of one number as they are.

    One number is a time or a scale, which 16 bits would change: bfloat16 has no 901.
    """
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() and value.dim() > 1 else value
    if type(value) is dict:
        return {key: item if key in _PLACES else _as(item, dtype) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_as(item, dtype) for item in value)
    return value


def _back(result: Any, dtype: torch.dtype | None) -> Any:
    """Return a component's result in ``dtype``; results with names keep their class."""
    if dtype is None:
        return result
    if isinstance(result, torch.Tensor):
        return result.to(dtype) if result.is_floating_point() else result
    if isinstance(result, OrderedDict):  # diffusers' BaseOutput, which is one and a dataclass
        return type(result)(**{name: _back(value, dtype) for name, value in result.items()})
    if type(result) in (list, tuple):
        return type(result)(_back(item, dtype) for item in result)
    parameters = getattr(result, "parameters", None)
    if isinstance(parameters, torch.Tensor):  # what a VAE encodes to, a distribution
        return type(result)(parameters.to(dtype), getattr(result, "deterministic", False))
    return result


def _before(tensor: torch.Tensor, original: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the values of ``tensor`` before, where it is now; in a dtype that somebody chose since, if so.

    Values that were changed since, as by a LoRA that was merged, stay what they are.
    """
    wanted = original.dtype if tensor.dtype == dtype else tensor.dtype
    rounded = original.to(dtype).to(device=tensor.device, dtype=tensor.dtype)
    is_same = tensor.device.type == "meta" or torch.equal(rounded, tensor.data)
    return (original if is_same else tensor.data).to(device=tensor.device, dtype=wanted)


def _put_back(tensor: torch.Tensor, original: torch.Tensor, dtype: torch.dtype) -> None:
    tensor.data = _before(tensor, original, dtype)


def _convert_added(part: Any, known: list[torch.Tensor], dtype: torch.dtype, previous: torch.dtype) -> None:
    """Convert what others have added in ``dtype`` since, fused projections or adapters, as the rest goes back."""
    before = {id(tensor) for tensor in known}
    for tensor, _ in _weights(part):
        if id(tensor) not in before and tensor.dtype == dtype and type(tensor) in (torch.Tensor, torch.nn.Parameter):
            tensor.data = tensor.data.to(previous)


def _weights(module: Any) -> Iterator[tuple[torch.Tensor, bool]]:
    """Yield every floating point parameter and buffer, and whether its model wants it in float32."""
    keep = tuple(getattr(module, "_keep_in_fp32_modules", None) or ())
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_floating_point():
            yield tensor, any(part in name.split(".") for part in keep)
