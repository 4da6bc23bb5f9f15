"""The nodes Optimization Report and Remove Optimizations: what ours have attached to an object of ComfyUI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from comfy_api.latest import io
from comfy_execution.graph_utils import ExecutionBlocker

from ..optimizers.core.activity import Summary
from ..optimizers.core.errors import InvalidSetting
from ..optimizers.core.phrases import phrase
from ..optimizers.in_comfyui.run.comfy_technique import Target
from ..optimizers.in_comfyui.structure.model_facts import require_model
from ..optimizers.in_comfyui.structure.protocols import VAE, ControlNet, ModelPatcher
from ..optimizers.in_comfyui.targets.controlnet_target import ControlNetTarget
from ..optimizers.in_comfyui.targets.model_target import ModelTarget
from ..optimizers.in_comfyui.targets.vae_target import VAETarget, require_vae
from ..service.comfyui.links import require_control_net, require_decoder
from ..service.comfyui.report_text import report_text
from .common import ADVANCED, PacelineNode


class PacelineOptimizationReport(PacelineNode):
    """Say what the optimizations on a model, VAE or ControlNet did when it was last used."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            "Optimization Report",
            "Lists the techniques that Paceline nodes attached to the model, VAE or ControlNet, and each run of the "
            "last prompt: where they were active, how much they saved, and each fallback with its reason.",
            "report, statistics, is it active, benchmark, profile",
            category=ADVANCED,
            inputs=[
                io.Model.Input("model", optional=True, tooltip="The model that goes into the sampler."),
                io.AnyType.Input(
                    "after",
                    optional=True,
                    tooltip="Connect the sampler's latent, or the image made from it. The report is then written "
                    "after sampling.",
                ),
                io.Vae.Input("vae", optional=True, tooltip="The VAE that decodes or encodes."),
                io.ControlNet.Input(
                    "control_net", optional=True, tooltip="The ControlNet that goes into the node that applies it."
                ),
            ],
            outputs=[io.String.Output(display_name="report")],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **_: object) -> float:
        """Run at every prompt: the same model can have been sampled again since."""
        return float("nan")

    @classmethod
    def execute(
        cls,
        model: ModelPatcher | None = None,
        after: object = None,
        vae: VAE | None = None,
        control_net: ControlNet | None = None,
    ) -> io.NodeOutput:
        if model is None and vae is None and control_net is None:
            raise InvalidSetting("There is nothing to report on.", "Connect a model, a vae or a control_net.")
        if model is not None:
            require_model(model)
        if vae is not None:
            require_vae(vae)
        require_control_net("control_net", control_net)
        text = report_text(model, vae, control_net)
        # "text" for whoever uses the API; the page shows that of its own nodes only, so ours has another name.
        return io.NodeOutput(text, ui={"text": (text,), "paceline_report": (text,)})


_TARGETS: dict[str, Callable[[Any], Target]] = {
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
                target = _TARGETS[name](value)
                outputs.append(target.with_techniques(()))
                removed.extend(technique.title for technique in target.techniques)
        headline = phrase("removed {names}", names=", ".join(removed)) if removed else phrase("nothing to remove")
        cls.announce(Summary("active" if removed else "inactive", headline, {"removed": len(removed)}))
        return io.NodeOutput(*outputs)
