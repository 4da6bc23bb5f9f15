"""The node Remove Optimizations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from comfy_api.latest import io
from comfy_execution.graph_utils import ExecutionBlocker

from ..core.activity import Summary
from ..core.errors import InvalidSetting
from ..core.phrases import phrase
from ..core.technique import Target, detach_all
from ..optimizers.hosts.comfyui.structure.protocols import VAE, ControlNet, ModelPatcher
from ..optimizers.hosts.comfyui.targets.controlnet import ControlNetTarget
from ..optimizers.hosts.comfyui.targets.model import ModelTarget
from ..optimizers.hosts.comfyui.targets.vae import VAETarget
from ..workbench.comfyui.links import require_control_net, require_decoder
from .common import PacelineNode

_TARGETS: dict[str, Callable[[Any], Target[Any]]] = {
    "model": ModelTarget,
    "vae": VAETarget,
    "control_net": ControlNetTarget,
}


class PacelineRemoveOptimizations(PacelineNode):
    """Take off everything that nodes of this pack have attached to a model, VAE or ControlNet."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            "Remove Optimizations",
            "Returns the model, VAE or ControlNet without anything that Paceline nodes attached to it, e.g. for "
            "a second pass at full quality. LoRAs and patches of other packs stay.",
            "unpatch, restore, baseline, remove tome, uncompile",
            inputs=[
                io.Model.Input("model", optional=True),
                io.Vae.Input("vae", optional=True),
                io.ControlNet.Input("control_net", optional=True),
            ],
            outputs=[io.Model.Output(), io.Vae.Output(), io.ControlNet.Output()],
        )

    @classmethod
    def execute(
        cls, model: ModelPatcher | None = None, vae: VAE | None = None, control_net: ControlNet | None = None
    ) -> io.NodeOutput:
        given = {"model": model, "vae": vae, "control_net": control_net}
        if all(value is None for value in given.values()):
            raise InvalidSetting("There is nothing to remove from.", "Connect a model, a vae or a control_net.")
        require_decoder("vae", vae)
        require_control_net("control_net", control_net)
        outputs: list[object] = []
        removed: list[str] = []
        for name, value in given.items():
            if value is None:
                outputs.append(ExecutionBlocker(f"Remove Optimizations: connect its input {name} to use this output."))
            else:
                copy, techniques = detach_all(_TARGETS[name](value))
                outputs.append(copy)
                removed.extend(technique.title for technique in techniques)
        headline = phrase("removed {names}", names=", ".join(removed)) if removed else phrase("nothing to remove")
        cls.announce(Summary("active" if removed else "inactive", headline, {"removed": len(removed)}))
        return io.NodeOutput(*outputs)
