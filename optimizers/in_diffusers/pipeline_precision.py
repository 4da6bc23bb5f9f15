"""Compute in another dtype, and get back the very weights that were there before."""

from __future__ import annotations

import functools
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.nn import Module
from torch.utils._pytree import tree_leaves

from ..core.errors import BackendUnavailable, UnsupportedModel
from ..core.not_copied import Args, Function, Kwargs
from ..core.settings import choice
from ..precision_policy import DTYPES, PrecisionPolicy, PrecisionSettings, arithmetic, choose_dtype
from .components import CONTROLNET, DENOISER, TEXT, VAE, device_of, require_plain_weights
from .host import Host
from .patches import Patches, to_channels_last
from .pipeline_technique import PipelineTechnique

_PLACES = ("img_ids", "txt_ids", "time_ids")
"""Arguments that hold positions and sizes, which few bits cannot count."""

_PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Exact classes of tensors that can be converted."""

LAYERWISE = "layerwise_casting"
"""diffusers' name of the hook that casts the weights of a layer in each call."""


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
        self._weights: list[_Weight] = []
        if component.role == VAE and settings.vae_dtype != "same":
            settings = replace(settings, dtype=settings.vae_dtype)
        require_plain_weights(self.title, component)
        device = device_of(component.part)
        hooks = [
            hook for each in component.part.modules() if (hook := getattr(each, "_diffusers_hook", None)) is not None
        ]
        if any(hook.get_hook(LAYERWISE) is not None for hook in hooks):
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
        places = list(_places(component.part))
        wanted = [(module, name) for module, name, stays in places if not stays]
        previous = next((_tensor_at(*place).dtype for place in wanted), dtype)
        self.policy = PrecisionPolicy(
            self.title, self.settings, previous, dtype, previous, dtype, kept=len(places) - len(wanted)
        )
        converted: dict[int, _Weight] = {}
        for place in wanted:
            tensor = _tensor_at(*place)
            if tensor.dtype != dtype or id(tensor) in converted:  # one tensor may be at several places
                weight = _Weight(*place, dtype, converted.get(id(tensor)))
                converted.setdefault(id(tensor), weight)
                self._weights.append(weight)
                # One by one: where memory runs out for one, the others go back.
                patches.on_undo(weight.put_back)
        known = {(id(module), name) for module, name, _ in places}
        patches.on_undo(partial(_convert_added, component.part, known, dtype, previous))
        if wanted:
            self._convert_calls(host, *wanted[0])
        if settings.channels_last:
            to_channels_last(component.part, patches)

    def _convert_calls(self, host: Host, module: Module, name: str) -> None:
        """Let the component take tensors of other dtypes: pipelines expect the same one of all their parts.

        The dtype is that of one weight in each call: pipelines of SDXL convert their VAE to float32 and back.
        """

        def converted(inner: Function) -> Function:
            @functools.wraps(inner)
            def run(*args: Any, **kwargs: Any) -> Any:
                # What a component is called with first: the noisy latents, or those to decode.
                tensors = (one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor))
                first, own = next(tensors, None), _computes_in(module, name)
                dtype = first.dtype if first is not None and first.is_floating_point() else None
                return _back(inner(*_as(args, own), **_as(kwargs, own)), dtype)

            return run

        host.wrap_entries(converted)

    def before(self, host: Host, args: Args, kwargs: Kwargs) -> None:
        """Convert weights that have taken the place of ours since the last call."""
        for weight in self._weights:
            weight.convert_again()

    def replaced(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for weight in self._weights:
            tensor = weight.now()
            if tensor is not None:
                yield tensor, weight.before(tensor)

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


class _Weight:
    """A weight at its place, and what was there before. Others may put tensors of their own there, or take it away."""

    def __init__(self, module: Module, name: str, dtype: torch.dtype, same: _Weight | None) -> None:
        self._module, self._name, self._dtype = module, name, dtype
        self._original: torch.Tensor
        tensor = _tensor_at(module, name)
        self._tensor = weakref.ref(tensor)
        if same is None:
            self._convert(tensor)
        else:
            self._original = same._original

    def _convert(self, tensor: torch.Tensor) -> None:
        stored = _offloaded(self._module, self._name) if tensor.device.type == "meta" else None
        original, converted = tensor.data if stored is None else stored[0][stored[1]], tensor.data.to(self._dtype)
        self._original = original if original.device.type in ("cpu", "meta") else original.to("cpu")
        self._tensor, tensor.data = weakref.ref(tensor), converted

    def convert_again(self) -> None:
        """Convert what is at the place if it is another tensor than before."""
        tensor = _tensor_at(self._module, self._name)
        if type(tensor) not in _PLAIN or tensor is self._tensor() or tensor.dtype == self._dtype:
            return
        if tensor.is_floating_point() and tensor.device.type != "meta":
            self._convert(tensor)

    def now(self) -> torch.Tensor | None:
        """Return the tensor at the place; the one that was there where it has gone elsewhere; None if it is gone."""
        tensor = _tensor_at(self._module, self._name)
        return tensor if tensor is not None and type(tensor) in _PLAIN else self._tensor()

    def before(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the values of ``tensor`` before, where it is now; in a dtype that somebody chose since, if so.

        Values that were changed since, as by a LoRA that was merged, stay what they are.
        """
        wanted = self._original.dtype if tensor.dtype == self._dtype else tensor.dtype
        rounded = self._original.to(self._dtype).to(device=tensor.device, dtype=tensor.dtype)
        is_same = tensor.device.type == "meta" or torch.equal(rounded, tensor.data)
        return (self._original if is_same else tensor.data).to(device=tensor.device, dtype=wanted)

    def put_back(self) -> None:
        tensor = self.now()
        if tensor is None:
            return
        stored = _offloaded(self._module, self._name) if tensor.device.type == "meta" else None
        if stored is not None:
            weights, key = stored
            weights[key] = self.before(weights[key])
            tensor.data = tensor.data.to(weights[key].dtype)
        else:
            tensor.data = self.before(tensor)


def _offloaded(module: Any, name: str) -> tuple[dict[str, torch.Tensor], str] | None:
    """Return where accelerate keeps a weight in memory while ``meta`` stands in its place; None if it does not."""
    hook = getattr(module, "_hf_hook", None)
    for one in getattr(hook, "hooks", (hook,)):
        weights: Any = getattr(one, "weights_map", None)
        key = name
        if hasattr(weights, "prefix"):
            weights, key = weights.dataset, weights.prefix + key
        weights = getattr(weights, "state_dict", weights)
        if isinstance(weights, dict) and key in weights:
            return weights, key
    return None


def _computes_in(module: Any, name: str) -> torch.dtype:
    """Return in which dtype a layer computes in the coming call."""
    hooks = getattr(module, "_diffusers_hook", None)
    casting: Any = None if hooks is None else hooks.get_hook(LAYERWISE)
    return _tensor_at(module, name).dtype if casting is None else casting.compute_dtype  # type: ignore[no-any-return]


def _tensor_at(module: Any, name: str) -> Any:
    tensor = module._parameters.get(name)
    return module._buffers.get(name) if tensor is None else tensor


def _convert_added(part: Any, known: set[tuple[int, str]], dtype: torch.dtype, previous: torch.dtype) -> None:
    """Convert what others have added in ``dtype`` since, fused projections or adapters, as the rest goes back."""
    for module, name, _ in _places(part):
        tensor = _tensor_at(module, name)
        if (id(module), name) not in known and tensor.dtype == dtype and type(tensor) in _PLAIN:
            tensor.data = tensor.data.to(previous)


def _places(part: Any) -> Iterator[tuple[Module, str, bool]]:
    """Yield the module and name of each floating point weight, and whether its model wants it in float32."""
    keep = tuple(getattr(part, "_keep_in_fp32_modules", None) or ())
    for path, module in part.named_modules():
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None and tensor.is_floating_point():
                yield module, name, any(one in (*path.split("."), name) for one in keep)
