"""The node Optimization Report."""

from __future__ import annotations

from typing import Any

from comfy_api.latest import io, ui

from ..optimizers.hosts.comfyui.compat import require_host
from ..optimizers.hosts.comfyui.report import report_text
from ..optimizers.hosts.comfyui.unet import require_model
from .common import CATEGORY


class PacelineOptimizationReport(io.ComfyNode):
    """Say what the optimizations on a model did in its last sampling run."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """Describe the inputs."""
        return io.Schema(
            node_id="PacelineOptimizationReport",
            display_name="Optimization Report",
            category=CATEGORY,
            description=(
                "Shows what is attached to the model and what it did when it was last sampled: where it was active, "
                "tokens before and after, fallbacks and their reasons."
            ),
            search_aliases=["report", "statistics", "is it active", "benchmark"],
            inputs=[
                io.Model.Input("model", tooltip="The model that goes into the sampler."),
                io.AnyType.Input(
                    "after",
                    optional=True,
                    tooltip="Connect the sampler's latent (or the image made from it), so that the report is written "
                    "after sampling and not before.",
                ),
            ],
            outputs=[io.String.Output(display_name="report")],
            hidden=[io.Hidden.unique_id],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **_: Any) -> float:
        """Run at every prompt: the same model can have been sampled again since."""
        return float("nan")

    @classmethod
    def execute(cls, model: Any, after: Any = None) -> io.NodeOutput:
        """Return the report as text and show it at the node."""
        require_host()
        require_model(model)
        text = report_text(model)
        return io.NodeOutput(text, ui=ui.PreviewText(text))
