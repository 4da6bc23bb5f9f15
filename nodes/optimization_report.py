"""The node Optimization Report."""

from __future__ import annotations

from comfy_api.latest import io

from ..core.errors import InvalidSetting
from ..optimizers.hosts.comfyui.structure.model import require_model
from ..optimizers.hosts.comfyui.structure.protocols import VAE, ControlNet, ModelPatcher
from ..optimizers.hosts.comfyui.targets.vae import require_vae
from ..workbench.comfyui.links import require_control_net
from ..workbench.comfyui.report_text import report_text
from .common import ADVANCED, PacelineNode


class PacelineOptimizationReport(PacelineNode):
    """Say what the optimizations on a model, VAE or ControlNet did when it was last used."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return cls.schema(
            "Optimization Report",
            "Shows what Paceline nodes attached to the model, VAE or ControlNet, and what it did in each run of "
            "the last prompt: where it was active, what it saved, and each fallback with its reason.",
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
