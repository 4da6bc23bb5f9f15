"""A second network beside the one that is there: the same but for the weights that a technique converts.

ComfyUI's clones share one network, and object patches that hold tensors corrupt it under dynamic VRAM. Every tensor
that is not converted is the *same memory* as the original's, until ComfyUI moves one of the two to a GPU.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary, ref

import torch
from torch.nn import Module

from ...core import weights
from ...core.errors import UnsupportedModel
from ..structure.model_facts import first_of
from ..structure.protocols import Patcher


def require_plain_weights(title: str, network: Any, model: str) -> None:
    """Raise `UnsupportedModel` if ``title`` would read weights that neither are plain nor in ComfyUI's own formats."""
    from comfy.quant_ops import QuantizedTensor

    remedy = "Load a safetensors file with one of ComfyUI's own loaders."
    weights.refuse_packed_weights(title, network, model, remedy, (QuantizedTensor,))


@dataclass
class WeightPlan:
    """A copy of ``model_config`` for the second model, and the dtype of its arithmetic; techniques may change both."""

    config: Any
    compute_dtype: torch.dtype


# Attributes that ComfyUI's loading leaves on modules: about the original's memory, not the structure.
_RUNTIME = {
    "weight_function", "bias_function", "weight_lowvram_function", "bias_lowvram_function", "comfy_cast_weights",
    "prev_comfy_cast_weights", "comfy_force_cast_weights", "comfy_patched_weights", "seed_key", "current_patcher",
    "current_weight_patches_uuid", "model_loaded_weight_memory", "model_offload_buffer_memory", "model_lowvram",
    "lowvram_patch_counter", "dynamic_vbars", "dynamic_pins", "dynamic_patchers", "_v", "_v_signature",
    "_v_weight", "_v_bias", "_v_block", "_v_block_faulted", "_comfy_graph", "_pins", "_pin", "_pin_state", "_prefetch",
}  # fmt: skip


_Tree = TypeVar("_Tree", bound=Module)


def second_module(
    root: _Tree,
    convert: Callable[[str, torch.Tensor], torch.Tensor],
    replace: Callable[[str, Module], Module | None] = lambda name, module: None,
    memo: dict[int, Any] | None = None,
) -> _Tree:
    """Return a second tree of modules beside ``root``, with the same memory wherever nothing is changed.

    ``convert`` gets a name and its parameter or buffer, and returns the very one to share it; ``replace`` a name and
    its module, and returns the new one, or None to make it like the old one. ``memo`` as in ``copy.deepcopy``.
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
                        values = convert(prefix + key, tensor.detach())
                        is_parameter = isinstance(tensor, torch.nn.Parameter)
                        memo[id(tensor)] = torch.nn.Parameter(values, requires_grad=False) if is_parameter else values
        memo[id(module)] = second
    # All modules exist now, so that references between them (parents, bound methods) find their new other end.
    for module, second in unfilled:
        for key, value in module.__dict__.items():
            if key not in _RUNTIME:
                second.__dict__[key] = value if isinstance(value, torch.Tensor) else copy.deepcopy(value, memo)
    return cast(_Tree, memo[id(root)])


def stage_in(network: Module, before: torch.dtype, now: torch.dtype, kept: tuple[str, ...] = ()) -> None:
    """Let dynamic VRAM bring the weights of a second network to the GPU in ``now``, not in the dtype of the first.

    ComfyUI notes each weight's dtype (``before``), and the copy has that note too. ``kept``: parts of the names, with a
    dot before, of layers whose weights stay as they are.
    """
    for path, module in network.named_modules():
        if any(part in f".{path}" for part in kept):
            continue
        for name, dtype in module.__dict__.items():
            if dtype == before and name.endswith("_comfy_model_dtype"):
                module.__dict__[name] = now


_second_copies: WeakKeyDictionary[object, ref[object]] = WeakKeyDictionary()
"""The patcher without dynamic VRAM that was loaded for a network, for as long as somebody uses it."""


def without_dynamic_vram(patcher: Patcher, what: str) -> Patcher:
    """Return a clone without dynamic VRAM, on a second copy of the weights; `UnsupportedModel` if it cannot be loaded.

    Loaded from the file the first time; clones made while an earlier one is in use share its copy. ``what`` is its name
    for the error.
    """
    kept = _second_copies.get(patcher.model)
    earlier: Patcher | None = kept() if kept is not None else None  # type: ignore[assignment]
    try:
        if earlier is not None:
            return patcher.clone(disable_dynamic=True, model_override=earlier.get_clone_model_override())
        clone = patcher.clone(disable_dynamic=True)
    except (RuntimeError, TypeError) as error:
        raise UnsupportedModel(
            f"{what} uses ComfyUI's dynamic VRAM, which cannot be compiled, and its loader cannot load it without "
            f"({error}).",
            "Start ComfyUI with --disable-dynamic-vram, or load it with one of ComfyUI's own loaders.",
        ) from error
    _second_copies[patcher.model] = ref(first_of(clone))  # which every clone of it keeps
    return clone
