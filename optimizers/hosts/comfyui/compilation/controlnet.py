"""Compile ControlNet: the technique, and a ControlNet that it can work with."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, cast

from ..controlnet import moved_to, require_controlnet
from ..weight_swap import unload
from .methods import CompileMethods
from .refusals import SECOND_COPY, uses_dynamic_vram

if TYPE_CHECKING:
    import torch

    from ....compilation.compiler import Compiler
    from ....compilation.settings import NetworkSettings
    from .. import protocols

# What dynamic VRAM keeps on modules: handles of memory, which must not be copied.
_HANDLES = ("_v", "_v_signature", "_pins", "_pin_state", "dynamic_vbars", "dynamic_pins", "dynamic_patchers")


def compilable(control_net: protocols.ControlNet) -> tuple[protocols.ControlNet, tuple[str, ...]]:
    """Return a CONTROL_NET that can be compiled, the given one if possible, and in sentences what was done for that.

    Raises:
        UnsupportedModel: if it is of a kind that cannot be compiled.
    """
    require_controlnet(control_net)
    patcher = control_net.control_model_wrapped
    if not uses_dynamic_vram(patcher):
        return control_net, ()
    # Unlike models and VAEs, ControlNets have no way to be loaded again without dynamic VRAM.
    from comfy.model_patcher import ModelPatcher

    unload(cast("protocols.ModelPatcher", patcher))
    network = without_handles(patcher.model)
    classic = ModelPatcher(network, load_device=patcher.load_device, offload_device=patcher.offload_device)
    return moved_to(control_net, classic), (SECOND_COPY,)


def without_handles(network: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of an unloaded network as it was before dynamic VRAM took it over."""
    held = [value for module in network.modules() for name, value in vars(module).items() if name in _HANDLES]
    copied = copy.deepcopy(network, {id(value): None for value in held})
    for module in copied.modules():
        attributes = vars(module)
        if "_pin_state" in attributes:  # was loaded: casting at every call, as its class does or does not
            attributes.pop("comfy_cast_weights", None)
        for name in _HANDLES:
            attributes.pop(name, None)
    return copied


class CompileControlNet(CompileMethods):
    """Compile ControlNet on one CONTROL_NET, which is read for its class only; `UnsupportedModel` for some."""

    title = "Compile ControlNet"

    def __init__(
        self, control_net: protocols.ControlNet, how: NetworkSettings, compiler: Compiler, notes: tuple[str, ...] = ()
    ) -> None:
        require_controlnet(control_net)
        super().__init__(how, ("__call__",), compiler, notes)
