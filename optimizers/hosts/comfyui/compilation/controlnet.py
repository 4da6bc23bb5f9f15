"""Compile ControlNet."""

from __future__ import annotations

from typing import cast

from ....compilation.compiler import Compiler
from ....compilation.settings import CompileSettings
from .. import protocols
from ..controlnet import moved_to, require_controlnet
from ..weight_clone import second_module
from ..weight_swap import unload
from ..weights import SECOND_COPY
from .methods import CompileMethods


def compilable(control_net: protocols.ControlNet) -> tuple[protocols.ControlNet, tuple[str, ...]]:
    """Return a CONTROL_NET that can be compiled, the given one if possible, and in sentences what was done for that.

    Raises `UnsupportedModel` for kinds that cannot be compiled.
    """
    require_controlnet(control_net)
    patcher = control_net.control_model_wrapped
    if not patcher.is_dynamic():
        return control_net, ()
    # Unlike models and VAEs, ControlNets have no way to be loaded again without dynamic VRAM.
    from comfy.model_patcher import ModelPatcher

    unload(cast("protocols.ModelPatcher", patcher))
    network = second_module(patcher.model, lambda name, tensor: tensor.clone())
    classic = ModelPatcher(network, load_device=patcher.load_device, offload_device=patcher.offload_device)
    return moved_to(control_net, classic), (SECOND_COPY,)


class CompileControlNet(CompileMethods):
    """Compile ControlNet on one CONTROL_NET, which is read for its class only; `UnsupportedModel` for some."""

    def __init__(
        self, control_net: protocols.ControlNet, how: CompileSettings, compiler: Compiler, notes: tuple[str, ...] = ()
    ) -> None:
        require_controlnet(control_net)
        super().__init__("Compile ControlNet", how, ("__call__",), compiler, notes)
