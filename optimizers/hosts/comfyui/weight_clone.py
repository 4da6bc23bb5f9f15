"""A second BaseModel beside the one that is there: the same but for the weights that a technique converts.

ComfyUI's clones share one network, and object patches that hold tensors corrupt it under dynamic VRAM. So other weights
need another network. This one costs little: every tensor that no technique converts is the *same memory* as the
original's, until ComfyUI moves one of the two to a GPU.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch.nn import Module

from ....core.errors import UnsupportedModel
from ....core.phrases import phrase, translatable
from .model import describe_model

if TYPE_CHECKING:
    from .protocols import BaseModel, ModelConfig, ModelPatcher, ModuleTree
    from .weight_swap import WeightTechnique


@dataclass
class WeightPlan:
    """What all techniques need to know of the second model while it is built; they may change it.

    Attributes:
        config: its ``model_config``, a copy.
        compute_dtype: what its layers compute in.
    """

    config: ModelConfig
    compute_dtype: torch.dtype


# What ComfyUI leaves on modules while they are loaded or were once: about the original's memory, not the structure.
_RUNTIME = {
    "weight_function", "bias_function", "weight_lowvram_function", "bias_lowvram_function", "comfy_cast_weights",
    "prev_comfy_cast_weights", "comfy_force_cast_weights", "comfy_patched_weights", "seed_key", "current_patcher",
    "current_weight_patches_uuid", "model_loaded_weight_memory", "model_offload_buffer_memory", "model_lowvram",
    "lowvram_patch_counter", "dynamic_vbars", "dynamic_pins", "dynamic_patchers", "_v", "_v_signature",
    "_v_weight", "_v_bias", "_pins", "_pin", "_pin_state", "_prefetch",
}  # fmt: skip


def _copied_config(config: ModelConfig) -> ModelConfig:
    """Return a copy of a ``model_config``; ``copy.copy`` trips over the class's own ``__getattr__``."""
    result = object.__new__(type(config))
    result.__dict__.update(config.__dict__)
    result.unet_config = dict(config.unet_config)
    return result


def build_second_model(patcher: ModelPatcher, techniques: Sequence[WeightTechnique]) -> BaseModel:
    """Return a second BaseModel beside that of ``patcher``, with the changes of ``techniques``.

    The original must be unloaded (see ``weight_swap.unload``): its weights in place, nobody's patches on it.

    Raises:
        UnsupportedModel: if its weights are of a class that only its own loader understands (GGUF, ...).
    """
    base = patcher.model
    _require_plain_weights(patcher)
    config = _copied_config(base.model_config)
    plan = WeightPlan(config, base.get_dtype_inference())
    for technique in techniques:
        technique.plan(plan)

    def replace(name: str, module: Module) -> Module | None:
        found = (technique.replace_module(name, module, plan) for technique in techniques)
        return next((module for module in found if module is not None), None)

    def convert(name: str, tensor: torch.Tensor) -> torch.Tensor:
        for technique in techniques:
            tensor = technique.convert_tensor(name, tensor, plan)
        return tensor

    model = second_module(base, convert, replace, {id(base.model_config): config})
    model.current_patcher = None
    for technique in techniques:
        technique.finish(model, plan)
    return model


_Tree = TypeVar("_Tree", bound="ModuleTree")


def second_module(
    root: _Tree,
    convert: Callable[[str, torch.Tensor], torch.Tensor],
    replace: Callable[[str, Module], Module | None] = lambda name, module: None,
    memo: dict[int, Any] | None = None,
) -> _Tree:
    """Return a second tree of modules beside ``root``, with the same memory wherever nothing is changed.

    Args:
        root: a module; not changed.
        convert: returns the tensor for one (name, parameter or buffer); the very one it is given to share it.
        replace: returns the new module for one (name, module), or None to make it like the old one.
        memo: what else has its place taken, by ``id``; as in ``copy.deepcopy``.
    """
    memo = {} if memo is None else memo
    unfilled = []
    for name, module in root.named_modules():
        second = replace(name, module)
        if second is None:
            second = object.__new__(type(module))
            unfilled.append((module, second))
            prefix = f"{name}." if name else ""
            for tensors in (module._parameters, module._buffers):
                for key, tensor in tensors.items():
                    if tensor is not None and id(tensor) not in memo:
                        memo[id(tensor)] = _second_tensor(tensor, convert(prefix + key, tensor.detach()))
        memo[id(module)] = second
    # All modules exist now, so that references between them (parents, bound methods) find their new other end.
    for module, second in unfilled:
        for key, value in module.__dict__.items():
            if key not in _RUNTIME:
                second.__dict__[key] = value if isinstance(value, torch.Tensor) else copy.deepcopy(value, memo)
    return cast(_Tree, memo[id(root)])


def stage_in(network: Module, before: torch.dtype, now: torch.dtype, kept: tuple[str, ...] = ()) -> None:
    """Let dynamic VRAM bring the weights of a second network to the GPU in ``now``, not in the dtype of the first.

    ComfyUI notes for each weight the dtype that its network was made for (``before``), and the copy has that note too.
    ``kept``: parts of the names of layers whose weights stay as they are.
    """
    for path, module in network.named_modules():
        if any(part in path for part in kept):
            continue
        for name, dtype in module.__dict__.items():
            if dtype == before and name.endswith("_comfy_model_dtype"):
                module.__dict__[name] = now


def _second_tensor(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.nn.Parameter(values, requires_grad=False) if isinstance(tensor, torch.nn.Parameter) else values


def _require_plain_weights(patcher: ModelPatcher) -> None:
    from comfy.quant_ops import QuantizedTensor

    for name, parameter in patcher.model.named_parameters():
        kind = type(parameter)
        if kind not in (torch.nn.Parameter, torch.Tensor) and not issubclass(kind, QuantizedTensor):
            raise UnsupportedModel(
                phrase(
                    "The weights of this {model} are of the class {kind} ({layer}), which only the loader that made "
                    "them understands.",
                    model=describe_model(patcher),
                    kind=kind.__name__,
                    layer=name,
                ),
                translatable("Load a safetensors file with one of ComfyUI's own loaders."),
            )
