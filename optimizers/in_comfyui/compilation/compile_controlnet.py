"""Compile ControlNet."""

from __future__ import annotations

from typing import cast

from ...compilation.compile_settings import CompileSettings
from ...compilation.compiler import Compiler
from ..second_weights.clone import require_plain_weights, second_module
from ..second_weights.moves import SECOND_COPY
from ..second_weights.swap import unload
from ..structure.protocols import ControlNet, ModelPatcher
from ..targets.controlnet_target import moved_control_net, require_controlnet
from .compile_methods import CompileMethods


def compile_controlnet(
    control_net: ControlNet, how: CompileSettings, compiler: Compiler
) -> tuple[ControlNet, CompileMethods]:
    """Return a CONTROL_NET that can be compiled, the given one if possible, and the technique for it.

    Raises `UnsupportedModel` for kinds that cannot be compiled.
    """
    require_controlnet(control_net)
    patcher = control_net.control_model_wrapped
    notes: tuple[str, ...] = ()
    if patcher.is_dynamic():
        # Unlike models and VAEs, ControlNets have no way to be loaded again without dynamic VRAM.
        import comfy.model_patcher

        unload(cast(ModelPatcher, patcher))
        require_plain_weights("Compile ControlNet", patcher.model, type(control_net).__name__)
        network = second_module(patcher.model, lambda name, tensor: tensor.clone())
        devices = {"load_device": patcher.load_device, "offload_device": patcher.offload_device}
        control_net = moved_control_net(control_net, comfy.model_patcher.ModelPatcher(network, **devices))
        notes = (SECOND_COPY,)
    return control_net, CompileMethods("Compile ControlNet", how, ("__call__",), compiler, notes)
