"""The node Model Precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from comfy_api.latest import io

from ..optimizers.hosts.comfyui.model import ModelTarget
from ..optimizers.hosts.comfyui.precision.model import model_precision
from ..optimizers.precision.settings import DTYPES, PrecisionSettings
from .common import OptimizingNode

if TYPE_CHECKING:
    from ..optimizers.hosts.comfyui.protocols import ModelPatcher


SEARCH_ALIASES = ("dtype", "bf16", "fp16", "fp32", "half precision", "channels_last")
"""What people search both precision nodes by."""


def precision_inputs() -> list[io.Input]:
    """Return the inputs that Model Precision and VAE Precision share."""
    return [
        io.Combo.Input(
            "dtype",
            options=list(DTYPES),
            default="auto",
            tooltip="What the network computes in. bf16 and fp16 need half the memory of fp32 and are quicker on "
            "GPUs; the image changes slightly. auto: on GPUs ComfyUI's choice, on processors bf16 "
            "where they have instructions for it.",
        ),
        io.Boolean.Input(
            "channels_last",
            default=False,
            tooltip="Convolutions with their channels last in memory: quicker on GPUs with tensor cores in 16 bits, on "
            "processors in some sizes. The image changes by rounding only.",
        ),
        io.Boolean.Input(
            "fp16_accumulation",
            default=False,
            advanced=True,
            tooltip="fp16 products add up in fp16 while this model runs: quicker on GeForce cards, less precise. As "
            "ComfyUI's --fast fp16_accumulation, but for this model only.",
        ),
        io.Boolean.Input(
            "tf32",
            default=False,
            advanced=True,
            tooltip="fp32 products with inputs rounded to TF32 while it runs: quicker from RTX 30 on. For models "
            "that compute in fp32.",
        ),
    ]


class PacelineModelPrecision(OptimizingNode):
    """Choose what a model computes in."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        """Describe the inputs."""
        return cls.schema(
            node_id="PacelineModelPrecision",
            display_name="Model Precision",
            description=(
                "Lets one model compute in bf16, fp16 or fp32, with channels last, fp16 accumulation or TF32. "
                "Other models, and this one before the node, stay as they are."
            ),
            search_aliases=[*SEARCH_ALIASES, "TF32", "memory", "vram", "speed"],
            inputs=[io.Model.Input("model"), *precision_inputs()],
            outputs=[io.Model.Output()],
        )

    @classmethod
    def apply(cls, model: ModelPatcher, **settings: Any) -> io.NodeOutput:
        """Return a clone of ``model`` that computes as chosen."""
        technique = model_precision(model, PrecisionSettings(**settings))
        return io.NodeOutput(cls.attach(ModelTarget(model), technique))
